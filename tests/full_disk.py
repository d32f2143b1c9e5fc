"""Fill the small disk of a served study, make room again, and print what callers saw: python full_disk.py FOLDER."""

import json
import os
import sys
from pathlib import Path

import rarely.service.app as routes
from rarely.study import Study
from services import serving, until
from studies import linear

BALLAST = 1 << 20


def main(folder):
    routes.MIN_FREE = 0  # this disk is smaller than that
    ballast, storage = Path(folder) / "ballast", f"sqlite:///{folder}/trial.db"
    ballast.write_bytes(os.urandom(BALLAST))
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        number = 1
        while (reply := service.decide(number)).status == 200:
            number += 1
        seen = {"answered": number - 1, "refused": reply.status, "title": reply.content["title"]}
        seen |= {"detail": reply.content["detail"], "live": service.send("GET", "/health/live").status}
        seen["ready"] = service.send("GET", "/health/ready").status
        seen["still refused"] = service.decide(number).status
        ballast.unlink()
        until(lambda: service.decide(number).status == 200)
        until(lambda: service.send("GET", "/health/ready").status == 200)
        seen |= {"decisions": service.status().decisions, "flaw": service.get("verify").content["flaw"]}
    with Study.open(storage) as study:
        seen["reopened"] = study.status().decisions
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
