"""64 threads of one process that all ask and tell for the same id; what they were answered, as JSON."""

import json
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from rarely.study import Study
from studies import contexts_of

THREADS = 64


def call(storage, name):
    """The distinct answers and receipts of all threads."""
    with Study.open(storage, name) as study:
        print("open", flush=True)
        sys.stdin.readline()  # both processes begin together
        found, lock, gate = [], threading.Lock(), threading.Barrier(THREADS, timeout=300)

        def one(number):
            gate.wait()
            answer = study.ask(contexts_of(1), id="one")
            receipt = study.tell("one", 1.0)
            own = study.ask(contexts_of(2), id=f"round-{number}")
            with lock:
                found.append((answer.describe(), receipt.status, own.describe()))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


if __name__ == "__main__":
    print(json.dumps(call(*sys.argv[1:])))
