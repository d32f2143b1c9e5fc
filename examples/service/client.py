"""The service from Python: ask, tell, and deliver later what could not be delivered.

    rarely serve sqlite:///shop.db &
    python examples/service/client.py http://127.0.0.1:8000 [KEY]

It needs the study of study.json:

    rarely study create sqlite:///shop.db --name banners --file examples/service/study.json
"""

from __future__ import annotations

import random
import sys

from rarely.study import Client

ARMS = ("deals", "news", "video")
"""Of the study in study.json."""


def visit(client: Client) -> str:
    """One visitor: three contexts, a banner, and perhaps a click."""
    contexts = [[random.random() for _ in range(4)] for _ in ARMS]
    answer = client.ask(contexts)
    receipt = client.tell(answer.id, float(random.random() < sum(contexts[answer.index]) / 4))
    return f"{answer.arm} with probability {answer.probability:.2f} by version {answer.version}: {receipt.status}"


def main() -> None:
    """Twenty visitors, and what waited in the spool."""
    url, key = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    with Client(url, "banners", key=key, spool="rewards.jsonl") as client:
        for _ in range(20):
            print(visit(client))
        print(f"delivered from the spool: {len(client.flush())}, waiting: {client.spooled}")


if __name__ == "__main__":
    main()
