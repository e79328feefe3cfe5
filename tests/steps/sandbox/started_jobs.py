"""Conformance tests of commands that run between calls, for every backend; ``Conformance`` includes them."""

from __future__ import annotations

from swe_argo.steps.sandbox.protocol import FLOOD_BYTES, JobProgress, Sandbox, StartedJob
from swe_argo.steps.sandbox.wrapper import start_job

LONG_S = 120.0
"""Longer than any of these commands should take."""


def end(job: StartedJob) -> JobProgress:
    """Return the last progress of a job that ends by itself."""
    progress = job.poll(wait_s=LONG_S)
    assert not progress.running
    return progress


def printed(job: StartedJob, last: bytes) -> bytes:
    """Return the new output up to ``last``; the job must still run."""
    output = b""
    while not output.endswith(last):
        progress = job.poll(wait_s=0.1)
        assert progress.running, progress
        output += progress.output
    return output


def start_ready_job(box: Sandbox, command: str) -> StartedJob:
    """Start a job, which has printed ``ready``."""
    job = start_job(box, f"echo ready; {command}")
    assert printed(job, b"ready\n") == b"ready\n"
    return job


class StartedJobs:
    def test_started_job_has_output_and_code(self, box: Sandbox) -> None:
        job = start_job(
            box, "echo one; echo two >&2; echo three; printf 'a b\\n\\\\c' >/tmp/note; echo >>/tmp/note; exit 3",
            note="/tmp/note",
        )  # fmt: skip
        progress = end(job)
        assert (progress.output, progress.tail, progress.exit_code) == (b"one\ntwo\nthree\n", None, 3)
        assert progress.note == ("a b", "\\c")
        assert (progress.timed_out, progress.quiet, progress.flooded) == (False, False, False)

    def test_started_job_has_environment(self, box: Sandbox) -> None:
        assert end(start_job(box, 'pwd; echo "$WORD"', cwd="/testbed/.git", env={"WORD": "a 'b'"})).output == (
            b"/testbed/.git\na 'b'\n"
        )
        text = "0123456789" * 40_000
        assert end(start_job(box, f"x={text}; echo ${{#x}}")).output == b"400000\n"

    def test_started_job_has_new_output_only(self, box: Sandbox) -> None:
        job = start_ready_job(box, "read -r line; echo more; read -r line; echo last")
        assert job.poll(wait_s=0.1) == JobProgress(running=True, output=b"")
        job.send(b"go on\n")
        assert printed(job, b"more\n") == b"more\n"
        assert job.poll(wait_s=LONG_S, quiet_s=0.3) == JobProgress(running=True, output=b"", quiet=True)
        job.send(b"go on\n")
        assert end(job).output == b"last\n"

    def test_printing_job_is_not_quiet(self, box: Sandbox) -> None:
        for scale in (1.0, 8.0):  # a busy machine may need longer to print
            job = start_job(box, f"for i in 1 2 3 4 5; do echo $i; sleep {0.3 * scale}; done; sleep 600")
            progress = job.poll(wait_s=LONG_S, quiet_s=scale)
            assert job.poll(wait_s=0.1, kill=True).timed_out
            if progress.output.endswith(b"5\n"):
                break
        assert (progress.quiet, progress.output) == (True, b"1\n2\n3\n4\n5\n")

    def test_started_job_reads_its_input(self, box: Sandbox) -> None:
        job = start_ready_job(box, 'read -r line; echo "got $line"; cat; echo end')
        job.send("it's 5 $HOME ü\n".encode())
        job.send(b"rest\n")
        assert printed(job, b"rest\n") == "got it's 5 $HOME ü\nrest\n".encode()
        job.close_input()
        job.close_input()
        assert end(job).output == b"end\n"

    def test_started_job_may_ignore_input(self, box: Sandbox) -> None:
        job = start_ready_job(box, "sleep 1; head -c 300000 | wc -c")
        job.send(b"x" * 300_000)
        assert end(job).output.strip() == b"300000"
        large = start_ready_job(box, "head -c 5000000 | wc -c")
        large.send(b"x" * 5_000_000)
        assert end(large).output.strip() == b"5000000"
        deaf = start_ready_job(box, "sleep 1; echo end")
        deaf.send(b"y" * 300_000)
        assert end(deaf).output == b"end\n"

    def test_poll_returns_at_first_output(self, box: Sandbox) -> None:
        job = start_job(box, "while read -r line; do sleep 0.2; echo got $line; done; echo end", wake_pipe="BELL")
        for number in range(3):
            progress = job.poll(wait_s=LONG_S, until_output=True, data=b"%d\n" % number)
            assert progress == JobProgress(running=True, output=b"got %d\n" % number)
        assert job.poll(wait_s=0.1, until_output=True) == JobProgress(running=True, output=b"")
        output = job.poll(wait_s=LONG_S, until_output=True, data=b"x" * 100_000 + b"\n").output
        while not output.endswith(b"\n"):
            output += job.poll(wait_s=LONG_S, until_output=True).output
        assert output == b"got " + b"x" * 100_000 + b"\n"
        job.close_input()
        progress = job.poll(wait_s=LONG_S, until_output=True)
        last = progress.output if not progress.running else progress.output + end(job).output
        assert last == b"end\n"

    def test_poll_returns_earlier_output(self, box: Sandbox) -> None:
        job = start_ready_job(box, "sleep 0.3; echo more; touch /testbed/printed; sleep 600")
        wait = "until rm /testbed/printed; do sleep 0.05; done 2>/dev/null; sleep 0.2"
        assert box.exec(wait, timeout_s=LONG_S).exit_code == 0
        assert job.poll(wait_s=300, until_output=True).output == b"more\n"
        assert job.poll(wait_s=0.1, kill=True).timed_out

    def test_started_job_can_be_interrupted(self, box: Sandbox) -> None:
        job = start_job(box, "trap 'echo interrupted; exit 5' INT; echo trapped; while :; do sleep 0.05; done")
        assert printed(job, b"trapped\n") == b"trapped\n"
        job.interrupt()
        progress = end(job)
        assert (progress.output, progress.exit_code) == (b"interrupted\n", 5)
        plain = start_ready_job(box, "sleep 1000")
        plain.interrupt()
        assert end(plain).exit_code == 130

    def test_killed_job_ends_its_children(self, box: Sandbox) -> None:
        beat = (
            "(while :; do echo x >>/testbed/beat; sleep 0.05; done) & until [ -s /testbed/beat ]; do sleep 0.05; done"
        )
        job = start_job(box, f"trap '' TERM; {beat}; echo beats; sleep 1000")
        assert printed(job, b"beats\n") == b"beats\n"
        progress = job.poll(wait_s=0.1, kill=True)
        assert (progress.running, progress.timed_out, progress.exit_code) == (False, True, None)
        beats = "wc -c </testbed/beat"
        result = box.exec(f"{beats}; sleep 0.4; {beats}; rm /testbed/beat", timeout_s=60)
        before, after = result.stdout.split()
        assert 0 < int(before) == int(after)

    def test_quiet_poll_kills_nothing(self, box: Sandbox) -> None:
        job = start_ready_job(box, "read -r line; echo end")
        assert job.poll(wait_s=LONG_S, quiet_s=0.5, kill=True).running
        job.send(b"\n")
        assert end(job).output == b"end\n"

    def test_long_output_keeps_both_ends(self, box: Sandbox) -> None:
        job = start_job(box, "echo first; seq 1000000; echo last", ends_bytes=1000)
        progress = end(job)
        assert progress.output == b"first\n" + "".join(f"{i}\n" for i in range(1, 1000)).encode()[:994]
        assert progress.tail is not None
        assert progress.tail.endswith(b"999999\n1000000\nlast\n")
        assert 900 < len(progress.tail) <= 1000
        exact = end(start_job(box, "head -c 2000 /dev/zero", ends_bytes=1000))
        assert (len(exact.output), exact.tail) == (2000, None)

    def test_unread_output_does_not_block(self, box: Sandbox) -> None:
        job = start_ready_job(
            box, "read -r line; head -c 3000000 /dev/zero; touch /testbed/printed; read -r line; echo end"
        )
        job.send(b"\n")
        wait = "until rm /testbed/printed; do sleep 0.05; done 2>/dev/null"
        assert box.exec(wait, timeout_s=LONG_S).exit_code == 0
        middle = job.poll(wait_s=0.0)
        assert (len(middle.output), len(middle.tail or b"")) == (512 << 10, 512 << 10)
        job.send(b"\n")
        assert end(job).output.lstrip(b"\0") == b"end\n"  # the last zeros may not have been copied by then

    def test_job_with_endless_output_is_killed(self, box: Sandbox) -> None:
        progress = start_job(box, "yes").poll(wait_s=120)
        assert (progress.running, progress.flooded, progress.timed_out, progress.exit_code) == (
            False, True, False, None,
        )  # fmt: skip
        assert set(progress.output) == set(b"y\n")
        assert FLOOD_BYTES < 1 << 30

    def test_child_does_not_block_a_job(self, box: Sandbox) -> None:
        progress = end(start_job(box, "(while :; do echo tick; sleep 0.05; done) & echo $! >/testbed/child; echo out"))
        assert progress.exit_code == 0
        assert b"out\n" in progress.output
        alive = box.exec("kill $(cat /testbed/child) && echo alive; rm /testbed/child", timeout_s=60)
        assert alive.stdout == b"alive\n"

    def test_jobs_run_side_by_side(self, box: Sandbox) -> None:
        jobs = [start_ready_job(box, f"read -r line; echo {number} $line") for number in range(3)]
        for number, job in enumerate(jobs):
            job.send(b"line %d\n" % number)
        assert [end(job).output for job in jobs] == [b"%d line %d\n" % (number, number) for number in range(3)]
