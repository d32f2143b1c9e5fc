"""What the page explains: the three readings of the paper, and every deviation from its text."""

from __future__ import annotations

from rarely.core.policies.presets import PresetName
from rarely.experiments.catalogue import FAIR

EXPLAINED: dict[PresetName, str] = {
    "paper": "the printed network, loss, contexts and rewards, with a step from the curvature, because the "
    "printed one diverges; float64",
    "practical": "the printed network and loss with contexts scaled and given a constant, rewards standardised, "
    "training in float32; rows of tables are standardised over the whole file; beside it "
    "stands the library's default policy, with nothing set but the rounds and B",
    "code": "what the public NeuralUCB program of Zhou et al. (2020) does: biases, no √m, uniform initial weights, "
    "J steps on single samples at the printed η going on from the last weights, decay toward 0, bonus "
    "√(λν·gᵀZ⁻¹g); rows of tables scaled to norm 1",
}
DEVIATIONS = (
    "The printed step sizes diverge at once with f = √m·W<sub>L</sub>σ(…): presets paper and practical take "
    "1.8/(m(λ<sub>max</sub>(ΦΦᵀ) + λ)) and check that the loss falls; preset code has no √m and takes the printed "
    "ones.",
    "Z is the full matrix, exact at every round; the program that preset code follows keeps its diagonal only.",
    "The fixed grid is t<sub>b</sub> = ⌊bT/B⌋ + 1: the printed one where B divides T, and balanced elsewhere.",
    "Batch 0 has no printed policy: it is that of the initial weights with Z = λI. A budget of B versions is "
    "B − 1 updates.",
    "N(0, 0.25) is read as variance 0.25; cosine-sd and quadratic-sd have it as a standard deviation. MAGIC has "
    "m = 100 here; magic-m400 has the other value that the text prints.",
    "Values that the text does not name: B = 100 and 200 and log q = 20, 40, 60 for cosine; B = 100 and "
    "log q = 20, 40 for Mushroom.",
    "LinUCB's best pair (λ, β) of 16 is chosen on the very runs reported, as in the paper; beside it stands "
    f"λ = β = {FAIR[0]:g}, fixed beforehand, and both again with an intercept (“LinUCB + 1”: a constant in the "
    "context, for tables one in each arm's block).",
    "Times are processor time of selecting and training in a process with one BLAS thread, rounds decided one at a "
    "time; they are compared within runs on one machine, and they are times of this implementation: LinUCB goes "
    "through the same machinery as the others, at about a millisecond a round, so that NeuralUCB is fewer times slower "
    "than it would be against a bare rank-one update. The paper's own seconds cannot be compared with them.",
)
