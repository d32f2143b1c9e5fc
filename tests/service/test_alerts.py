"""The alerts for Prometheus and the queries of Grafana, read and tried by promtool."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "service"
RULES = [
    rule
    for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]  # fmt: skip
STUDY = 'instance="a",job="rarely",study="s"'
pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)


def of_study(name, values, more=""):
    return {f"rarely_{name}{{{STUDY}{more}}}": values}


def of_service(name, values):
    return {f'{name}{{instance="a",job="rarely"}}': values}


def requests(status, values):
    return of_study("requests_total", values, f',route="decide",status="{status}"')


def latency(slow):
    lines = {"0.1": "0+1x200" if slow else "0+60x200", "0.5": "0+60x200", "+Inf": "0+60x200"}
    return {
        f'rarely_request_seconds_bucket{{{STUDY},route="decide",le="{le}"}}': values for le, values in lines.items()
    }


def late(**instead):
    numbers = {"update_due": 1, "training": 0, "pinned": 0, "candidate": 0} | instead
    return {series: text for name, value in numbers.items() for series, text in of_study(name, f"{value}x200").items()}


def rewards(quarantined, received="0+10x200"):
    kinds = {"quarantined": quarantined, "received": received}
    return {s: v for kind, values in kinds.items() for s, v in of_study("rewards", values, f',kind="{kind}"').items()}


CASES = {  # alert: (series that fire it, series that do not), a value a minute
    "RarelyAway": (
        [{'up{instance="a",job="rarely"}': "1x200", 'up{instance="b",job="rarely"}': "1x50 0x150"}, {}],
        [{'up{instance="a",job="rarely"}': "1x200", 'up{instance="b",job="rarely"}': "1x200"}],
    ),
    "RarelyNotReady": ([of_service("rarely_ready", "0x200")], [of_service("rarely_ready", "1x200")]),
    "RarelyStudyBroken": ([of_study("healthy", "0x200")], [of_study("healthy", "1x200")]),
    "RarelyRefuses": (
        [requests(200, "0+50x200") | requests(503, "0+1x200")],
        [requests(200, "0+500x200") | requests(503, "0+1x200"), requests(200, "0x200")],
    ),
    "RarelySlow": ([latency(slow=True)], [latency(slow=False)]),
    "RarelyTrainingFails": (
        [of_study("trainings_total", "0x195 1x5", ',outcome="failed"')],
        [of_study("trainings_total", "1x200", ',outcome="failed"')],
    ),
    "RarelyUpdateLate": ([late()], [late(update_due=0), late(training=1), late(pinned=1), late(candidate=1)]),
    "RarelyNoCheckpoint": (
        [of_study("events_after_checkpoint", "60000x200")],
        [of_study("events_after_checkpoint", "40000x200")],
    ),
    "RarelyQuarantine": ([rewards("0+1x200")], [rewards("0x200"), rewards("0+0.1x200"), rewards("9x200", "9x200")]),
    "RarelyChanged": (
        [of_study("alarm_raised", "1x200", ',kind="level"')],
        [of_study("alarm_raised", "0x200", ',kind="level"')],
    ),
    "RarelyRewardsFell": ([of_study("rewards_fell", "1x200")], [of_study("rewards_fell", "0x200")]),
    "RarelyClockAhead": (
        [of_study("clock_ahead_seconds", "90x200")],
        [of_study("clock_ahead_seconds", "9x200")],
    ),
    "RarelyKeysDamaged": ([of_service("rarely_keys_valid", "0x200")], [of_service("rarely_keys_valid", "1x200")]),
    "RarelyDiskFills": (
        [of_service("rarely_storage_free_bytes", "1000000-1000x200")],
        [of_service("rarely_storage_free_bytes", "1000000-10x200"), of_service("rarely_storage_free_bytes", "9x200")],
    ),
}


def promtool(folder, *arguments):
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_reads_every_rule(tmp_path):
    assert f"{len(RULES)} rules found" in promtool(EXAMPLES, "check", "rules", "alerts.yaml")


def test_promtool_reads_every_query_of_grafana(tmp_path):
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    rules = [{"record": f"query_{n}", "expr": query.replace("$study", ".*")} for n, query in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "grafana", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool(tmp_path, "check", "rules", "queries.yaml")


def test_every_alert_has_a_case_and_a_line_in_the_docs():
    names = {rule["alert"] for rule in RULES}
    page = (EXAMPLES.parents[1] / "docs" / "operations.md").read_text()
    assert names == set(CASES) == set(re.findall(r"`(Rarely[A-Z][A-Za-z]+)`", page))


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(alert, tmp_path):
    (tmp_path / "alerts.yaml").write_text((EXAMPLES / "alerts.yaml").read_text())
    tests = []
    for fires, inputs in zip((True, False), CASES[alert], strict=True):
        query = f'min(count_values("n", ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0) or vector(0)'
        wanted = {"expr": query, "eval_time": "3h19m", "exp_samples": [{"labels": "{}", "value": int(fires)}]}
        for series in inputs:
            given = [{"series": name, "values": values} for name, values in series.items()]
            tests.append({"interval": "1m", "input_series": given, "promql_expr_test": [wanted]})
    document = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    promtool(tmp_path, "test", "rules", "test.yaml")
