"""A PostgreSQL server of the tests' own, on loopback, in a temporary folder, by a user who is not root."""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

FOLDERS = ["", *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
USERS = ("postgres", "nobody")


def missing():
    """Why no server can be started here; "" where one can."""
    try:
        import psycopg  # noqa: F401
    except ModuleNotFoundError:
        return "psycopg is not installed: pip install 'rarely[postgres]'"
    if program("initdb") is None or program("postgres") is None:
        return "PostgreSQL's server is not installed: apt-get install postgresql"
    if os.name != "posix":
        return "the tests start PostgreSQL on POSIX systems alone"
    if os.geteuid() == 0 and (_user() is None or shutil.which("setpriv") is None):
        return "PostgreSQL does not run as root, and there is no other user, or no setpriv, to run it as"
    return ""


def program(name):
    found = (shutil.which(name, path=folder or None) for folder in FOLDERS)
    return next(filter(None, found), None)


def _user():
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class Server:
    """One server; `kill` ends it as a power cut would, and `start` brings it back."""

    def __init__(self, *, durable=True):
        self.durable = durable
        self.folder = tempfile.mkdtemp(prefix="rarely-pg-")
        self._prefix, self._process = [], None
        if os.geteuid() == 0:
            user = _user()
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._prefix = [
                *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
                "--pdeathsig=INT",  # a test run that is killed takes its server with it
            ]
        self.data = os.path.join(self.folder, "data")
        self._run(program("initdb"), "-D", self.data, "-U", "rarely", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def _run(self, *command):
        subprocess.run([*self._prefix, *command], check=True, capture_output=True, cwd=self.folder)

    def start(self):
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder}
        options |= {"shared_buffers": "16MB", "max_connections": 40, "wal_level": "minimal", "max_wal_senders": 0}
        if not self.durable:
            options |= {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        # A session of its own, so that `kill` reaches all of its processes.
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, program("postgres"), "-D", self.data, *given],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self._wait()

    def _wait(self):
        import psycopg

        deadline = time.monotonic() + 300
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    with open(os.path.join(self.folder, "log"), errors="replace") as log:
                        raise RuntimeError(f"PostgreSQL did not start: {log.read()[-2000:]}") from None
                time.sleep(0.05)

    def url(self, database):
        return f"postgresql://rarely@127.0.0.1:{self.port}/{database}"

    def new_schema(self, name):
        """The storage string of an empty schema, which is made faster than a database."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url('postgres')}?options=-csearch_path%3D{name}"

    def kill(self):
        """End all processes of the server at once, with SIGKILL."""
        os.killpg(self._process.pid, 9)
        self._process.wait()

    def stop(self):
        """End the server and remove its files, which nobody needs any more."""
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
