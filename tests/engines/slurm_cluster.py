"""A real Slurm of three nodes on this host, under one folder: `python tests/engines/slurm_cluster.py`.

Debian's slurm-wlm and munge serve (apt-get install slurm-wlm munge); it is run as root, without systemd.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

NODES = ("node1", "node2", "node3")
CONFIGURATION = """
ClusterName=three
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
# a job whose node is lost is queued again after this many seconds, by default 120
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdTimeout=6
KillWait=5
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=1
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
"""


class SlurmCluster:
    """Controller and nodes that run; `environment` is what clients need."""

    def __init__(self, folder: Path):
        self.folder, self.host = folder, socket.gethostname().split(".")[0]
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = _free_ports(1 + len(NODES))
        self.ports = dict(zip(NODES, ports[1:], strict=True))
        for name in ("state", *(f"spool.{node}" for node in NODES)):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        filled = CONFIGURATION.format(
            host=self.host,
            folder=folder,
            controller=ports[0],
            nodes=",".join(NODES),
            ports=",".join(map(str, ports[1:])),
        )
        (folder / "slurm.conf").write_text(filled)

    def start(self) -> None:
        munge = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid"}
        munge |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        given = [f"--{option}={self.folder / name}" for option, name in munge.items()]
        self._launch("munge", "munged", "--foreground", "--force", *given)
        _wait(lambda: (self.folder / "munge.socket").exists(), "munged's socket")
        self._launch("controller", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        _wait(lambda: self.states().count("idle") == len(NODES), "three idle nodes")

    def start_node(self, node: str) -> None:
        self._launch(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """As if its power had gone: the daemon and whatever it runs, at once."""
        doomed = [psutil.Process(self.processes[node].pid), *self.jobs_on(node)]
        for process in doomed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.processes.pop(node).wait()

    def jobs_on(self, node: str) -> list[psutil.Process]:
        """Job steps of a node and all they started: a step writes the log of its node, and its programs know it."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.name() == "slurmstepd":
                    log = str(self.folder / f"slurmd.{node}.log")
                    found += [process for file in process.open_files() if file.path == log]
                    continue
                known = process.environ()
                ours = known.get("SLURM_CONF") == self.environment["SLURM_CONF"]
                found += [process] if ours and known.get("SLURMD_NODENAME") == node else []
        return found

    def states(self) -> list[str]:
        told = self.ask("sinfo", "--noheader", "--Node", "--format=%T")
        return told.split()

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
        return done.stdout

    def stop(self) -> None:
        self.ask("scancel", "--user=root")
        for node in NODES:
            for process in self.jobs_on(node):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _launch(self, name: str, *command: str) -> None:
        path = os.environ["PATH"] + ":/usr/sbin"
        with (self.folder / f"{name}.out").open("wb") as said:
            self.processes[name] = subprocess.Popen(
                [shutil.which(command[0], path=path) or command[0], *command[1:]],
                env=os.environ | self.environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )


@contextmanager
def three_slurm_nodes() -> Iterator[SlurmCluster]:
    """Inside, `SLURM_CONF` names a cluster of three nodes of one CPU each; afterwards nothing of it runs."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        cluster, before = SlurmCluster(Path(folder)), os.environ.get("SLURM_CONF")
        os.environ |= cluster.environment
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            os.environ.pop("SLURM_CONF")
            if before is not None:
                os.environ["SLURM_CONF"] = before


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(happened, what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.2)


if __name__ == "__main__":
    with three_slurm_nodes() as started:
        print(started.ask("sinfo", "--Node", "--long"))
        print(started.ask("srun", "--nodes=3", "printenv", "SLURMD_NODENAME"))
