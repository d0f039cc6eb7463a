"""The command line, as a user meets it."""
import json
import os
import pty
import select
import signal
import socket
import subprocess
import threading
import time

import yaml

from berthtest import BERTH, MARK, Case


class CommandLine(Case):
    def prepared(self):
        c = self.cluster(nodes=2)
        for name in ("web-1", "web-2", "worker"):
            c.apply(name, labels={"app": name.split("-")[0]}, command=["sh", "-c", "while :; do echo hello; sleep 0.1; done"])
        for name in ("web-1", "web-2", "worker"):
            c.wait_phase(name, "Running")
        return c

    # R: C2 A9
    def test_exit_codes_and_errors_in_three_lines(self):
        c = self.prepared()
        self.assertEqual(c.ok("version").code, 0)
        for code, args in ((2, ("nonsense",)), (2, ("get",)), (2, ("get", "workloads", "--nonsense")), (2, ("run", "x")),
                           (4, ("describe", "nobody")), (4, ("delete", "nobody")), (4, ("logs", "nobody")),
                           (2, ("get", "workloads", "-o", "xml")), (2, ("apply",)), (2, ("completion", "tcsh"))):
            r = c.cli(*args)
            self.assertEqual(r.code, code, f"{args}: {r}")
            self.assertTrue(r.err.startswith("error: "), f"{args}: {r}")
            self.assertEqual(r.out, "", f"{args}: errors go to stderr")
            self.assertLessEqual(len(r.err.strip().splitlines()), 4, f"{args}: {r.err}")
        r = c.cli("get", "workloads", env={"BERTH_SERVER": "127.0.0.1:1"})
        self.assertEqual(r.code, 6, "not reachable: may be tried again")
        self.assertIn("127.0.0.1:1", r.err)
        self.assertIn("hint:", r.err)

    # R: A9
    def test_typos_get_a_suggestion(self):
        c = self.prepared()
        for wrong, right in ((("gte", "workloads"), "get"), (("get", "wrokloads"), "workloads"), (("get", "workloads", "--outptu", "json"), "--output"),
                             (("describe", "wroker"), "worker")):
            r = c.cli(*wrong)
            self.assertNotEqual(r.code, 0)
            self.assertIn(right, r.err, f"{wrong}: {r}")

    # R: C2
    def test_unique_beginnings_of_names_work(self):
        c = self.prepared()
        self.assertIn("worker", c.ok("describe", "wor").out)
        r = c.cli("describe", "web")
        self.assertNotEqual(r.code, 0)
        self.assertIn("web-1", r.err)
        self.assertIn("web-2", r.err)

    # R: C2
    def test_all_output_formats_can_be_read_back(self):
        c = self.prepared()
        ids = ["web-1", "web-2", "worker"]
        for what in ("workloads", "nodes", "events"):
            self.assertTrue(json.loads(c.ok("get", what, "-o", "json").out))
            self.assertTrue(list(yaml.safe_load_all(c.ok("get", what, "-o", "yaml").out)))
            table = c.ok("get", what).out.splitlines()
            self.assertEqual(table[0], table[0].upper())
            self.assertTrue(all("\x1b" not in line for line in table), "no colour when it is no terminal")
            self.assertGreaterEqual(len(c.ok("get", what, "-o", "wide").out.splitlines()[0]), len(table[0]))
        listed = json.loads(c.ok("get", "workloads", "-o", "json").out)
        items = listed["items"] if isinstance(listed, dict) else listed
        self.assertEqual([w["id"] for w in items], ids)
        names = c.ok("get", "workloads", "-o", "name").out.split()
        self.assertEqual([n.split("/")[-1] for n in names], ids)
        self.assertEqual(len(c.ok("get", "workloads", "-l", "app=web", "-o", "name").out.split()), 2)
        # What get prints, apply takes; and since it is the same, nothing changes.
        head = c.head()
        c.ok("apply", "-f", "-", stdin=c.ok("get", "workloads", "-o", "yaml").out)
        self.assertEqual(c.head(), head)
        c.ok("apply", "-f", "-", stdin=c.ok("get", "workloads", "-o", "json").out)
        self.assertEqual(c.head(), head)

    # R: C2
    def test_apply_takes_several_documents_and_says_what_it_did(self):
        c = self.cluster(nodes=1)
        text = "---\n".join(f"id: doc-{i}\nspec:\n  command: [sleep, '100000']\n  env: {{{MARK}: '{c.mark}'}}\nresources: {{cpu: 50m, memory_mb: 8}}\n" for i in range(3))
        path = os.path.join(c.dir, "m.yaml")
        with open(path, "w") as f:
            f.write(text)
        r = c.ok("apply", "-f", path, "--wait", "--timeout", "30s")
        for i in range(3):
            self.assertIn(f"doc-{i}", r.out)
            self.assertEqual(c.workload(f"doc-{i}")["status"]["phase"], "Running")
        head = c.head()
        self.assertIn("unchanged", c.ok("apply", "-f", path).out)
        self.assertEqual(c.head(), head)
        self.assertEqual(c.workload("doc-0")["resources"]["cpu"], 0.05)

    # R: C2 C7
    def test_apply_sends_many_documents_in_few_calls(self):
        c = self.cluster(nodes=0)

        def doc(i, cpu="10m"):
            return f"id: many-{i}\nspec:\n  command: [sleep, '100000']\nresources: {{cpu: {cpu}}}\n"
        lines = c.ok("apply", "-f", "-", stdin="---\n".join(doc(i) for i in range(1100))).out.splitlines()
        self.assertEqual(lines, [f"workload/many-{i} created" for i in range(1100)])
        r = c.cli("apply", "--create-only", "-f", "-", stdin="---\n".join((doc(0), doc(1, "20m"), doc("new"))))
        self.assertEqual(r.out.splitlines(), ["workload/many-0 unchanged", "workload/many-new created"])
        self.assertIn("workload many-1", r.err)
        self.assertEqual(r.code, 5)
        self.assertEqual(c.workload("many-1")["resources"]["cpu"], 0.01)

    # R: C6
    def test_run_waits_and_reports_failure(self):
        c = self.cluster(nodes=1)
        mark = ("--env", f"{MARK}={c.mark}")
        c.ok("run", "good", "--job", *mark, "--wait=Completed", "--timeout", "30s", "--", "true")
        self.assertEqual(c.workload("good")["status"]["exit_code"], 0)
        r = c.cli("run", "late", *mark, "--cpu", "99", "--wait", "--timeout", "1s", "--", "true")
        self.assertNotEqual(r.code, 0)
        self.assertIn("late", r.err)
        c.ok("run", "sized", *mark, "--cpu", "250m", "--memory", "64M", "--label", "a=b", "--", "sleep", "100000")
        w = c.wait_phase("sized", "Running")
        self.assertEqual((w["resources"]["cpu"], w["resources"]["memory_mb"], w["labels"]), (0.25, 64, {"a": "b"}))

    # R: C6 (B7: a second run of a job said "created" and ran nothing)
    def test_run_of_a_name_that_is_there_says_so(self):
        c = self.cluster(nodes=1)
        counted = os.path.join(c.dir, "runs")
        job = ["run", "once", "--env", f"{MARK}={c.mark}", "--job", "--wait", "--timeout", "60s"]
        work = ["--", "sh", "-c", f"echo ran >> {counted}"]

        def runs():
            with open(counted) as f:
                return len(f.readlines())
        self.assertIn("workload/once created", c.ok(*job, *work).out)
        r = c.cli(*job, *work)
        self.assertEqual(r.code, 5, r)
        self.assertNotIn("created", r.out)
        self.assertIn("there already, with this definition", r.err)
        self.assertIn("Completed", r.err)
        self.assertIn("--replace", r.err)
        self.assertIn("--name-suffix", r.err)
        self.assertEqual(runs(), 1)
        self.assertIn("workload/once updated", c.ok(*job, "--replace", *work).out)
        c.wait_for("a second run", lambda: runs() == 2)
        r = c.ok(*job, "--name-suffix", *work)
        self.assertRegex(r.out, r"(?m)^workload/once-[0-9a-z]{6} created$")
        self.assertEqual(runs(), 3)
        # a service with the same definition is what was asked for; with another one the name is taken
        service = ["run", "serve", "--env", f"{MARK}={c.mark}"]
        c.ok(*service, "--", "sleep", "100000")
        c.wait_phase("serve", "Running")
        self.assertIn("workload/serve unchanged", c.ok(*service, "--", "sleep", "100000").out)
        self.assertEqual(c.cli(*service, "--", "sleep", "200000").code, 5)

    # R: C6 C7
    def test_run_replace_changes_labels_without_a_restart_and_says_so(self):
        c = self.cluster(nodes=1)

        def run(name, *options, code="sleep 100000"):
            return c.ok("run", name, "--env", f"{MARK}={c.mark}", "--replace", *options, "--", "sh", "-c", code).out
        self.assertIn("workload/serve created", run("serve", "--label", "tier=a"))
        before = c.wait_phase("serve", "Running")
        self.assertIn("workload/serve unchanged", run("serve", "--label", "tier=a"))
        self.assertIn("workload/serve updated", run("serve", "--label", "tier=b"))
        after = c.workload("serve")
        self.assertEqual(after["labels"], {"tier": "b"})
        self.assertEqual((after["token"], after["revision_id"]), (before["token"], before["revision_id"]))
        self.assertIn("workload/serve updated", run("serve", "--label", "tier=b", "--retries", "3"))
        self.assertEqual(c.workload("serve")["token"], before["token"])
        manifest = c.workload("serve")  # berth apply says the same of the same change
        manifest["labels"] = {"tier": "c"}
        path = os.path.join(c.dir, "serve.json")
        with open(path, "w") as f:
            json.dump(manifest, f)
        self.assertIn("workload/serve updated", c.ok("apply", "-f", path).out)
        self.assertEqual(c.workload("serve")["token"], before["token"])
        c.ok("stop", "serve")
        self.assertIn("workload/serve updated", run("serve", "--label", "tier=c", "--retries", "3"))  # it runs again
        # a job that runs goes on; one that has ended runs again, with the new labels
        run("job", "--job", "--label", "tier=a")
        before = c.wait_phase("job", "Running")
        self.assertIn("workload/job updated", run("job", "--job", "--label", "tier=b"))
        self.assertEqual(c.workload("job")["token"], before["token"])
        run("ends", "--job", code="exit 0")
        before = c.wait_phase("ends", "Completed")
        self.assertIn("workload/ends updated", run("ends", "--job", "--label", "tier=b", code="exit 0"))
        after = c.wait_phase("ends", "Completed")
        self.assertNotEqual(after["token"], before["token"])
        self.assertEqual(after["labels"], {"tier": "b"})

    # R: C40
    def test_logs(self):
        c = self.cluster(nodes=1)
        c.apply("talk", command=["sh", "-c", "for i in 1 2 3 4 5; do echo line $i; done; echo problem >&2; while :; do sleep 0.1; echo more; done"])
        c.wait_phase("talk", "Running")
        c.wait_for("its output", lambda: "line 5\n" in c.ok("logs", "talk").out)
        r = c.ok("logs", "talk")
        self.assertTrue(r.out.startswith("line 1\nline 2\n"), r.out)
        self.assertIn("problem", r.out + r.err)
        self.assertEqual(len(c.ok("logs", "talk", "--tail", "2").out.splitlines()), 2)
        p = subprocess.Popen([BERTH, "logs", "-f", "talk"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**c.env, "BERTH_SERVER": c.grpc_address})
        got = b""
        deadline = time.monotonic() + 20
        while got.count(b"more\n") < 5 and time.monotonic() < deadline:
            if select.select([p.stdout], [], [], 1)[0]:
                got += os.read(p.stdout.fileno(), 65536)
        self.assertGreaterEqual(got.count(b"more\n"), 5)
        p.send_signal(signal.SIGINT)
        self.assertIn(p.wait(10), (0, 130, -signal.SIGINT))
        p.stdout.close()
        p.stderr.close()

    # R: C40
    def test_exec(self):
        c = self.cluster(nodes=1)
        c.apply("box", env={"COLOUR": "blue"})
        c.wait_phase("box", "Running")
        self.assertEqual(c.ok("exec", "box", "--", "sh", "-c", "echo $COLOUR").out, "blue\n")
        r = c.cli("exec", "box", "--", "sh", "-c", "echo problem >&2; exit 42")
        self.assertEqual((r.code, r.err), (42, "problem\n"))
        r = c.cli("exec", "-i", "box", "--", "cat", stdin="through and back\n" * 10000)
        self.assertEqual((r.code, len(r.out)), (0, len("through and back\n") * 10000))
        r = c.cli("exec", "box", "--", "/no/such/program")
        self.assertIn(r.code, (1, 126, 127))
        self.assertEqual(c.cli("exec", "nobody", "--", "true").code, 4)
        c.ok("stop", "box")
        c.wait_phase("box", "Stopped")
        self.assertNotEqual(c.cli("exec", "box", "--", "true").code, 0)

    # R: C29 X4
    def test_events_follow(self):
        c = self.cluster(nodes=1)
        p = subprocess.Popen([BERTH, "events", "--follow"], stdout=subprocess.PIPE, env={**c.env, "BERTH_SERVER": c.grpc_address}, text=True)
        c.apply("seen")
        for line in p.stdout:
            if "WorkloadStarted" in line and "seen" in line:
                break
        p.send_signal(signal.SIGINT)
        p.wait(10)
        p.stdout.close()
        self.assertIn("WorkloadApplied", c.ok("events").out)
        self.assertTrue(c.ok("events", "--since", "1h").out)

    # R: A9
    def test_a_closed_pipe_is_no_error(self):
        c = self.prepared()
        p = subprocess.run(["sh", "-c", f"{BERTH} get events -o json; echo $? >&2"], env={**c.env, "BERTH_SERVER": c.grpc_address}, capture_output=True, text=True)
        self.assertEqual(p.stderr, "0\n")
        for command in ("events -n 0 -o json", "get workloads -o yaml", "help", "logs -f worker"):
            p = subprocess.run(["bash", "-c", f"set -o pipefail; for i in 1 2 3 4 5; do {BERTH} {command} | head -c 1 >/dev/null || exit 9; done"],
                               env={**c.env, "BERTH_SERVER": c.grpc_address}, capture_output=True, text=True, timeout=60)
            self.assertEqual((p.returncode, p.stderr), (0, ""), command)

    # R: A1
    def test_colour_only_on_a_terminal_and_not_with_no_color(self):
        c = self.prepared()

        def on_terminal(env):
            main, other = pty.openpty()
            p = subprocess.Popen([BERTH, "get", "workloads"], stdin=other, stdout=other, stderr=other, close_fds=True,
                                 env={**c.env, "BERTH_SERVER": c.grpc_address, "TERM": "xterm", **env})
            os.close(other)
            out = b""
            while True:
                try:
                    data = os.read(main, 65536)
                except OSError:
                    break
                if not data:
                    break
                out += data
            p.wait()
            os.close(main)
            return out

        self.assertIn(b"\x1b[", on_terminal({}))
        self.assertNotIn(b"\x1b[", on_terminal({"NO_COLOR": "1"}))
        self.assertNotIn(b"\x1b[", on_terminal({"TERM": "dumb"}))

    # R: A1
    def test_completion_scripts_load_and_complete(self):
        c = self.prepared()
        script = os.path.join(c.dir, "completion.bash")
        with open(script, "w") as f:
            f.write(c.ok("completion", "bash").out)
        p = subprocess.run(["bash", "-c", f"set -eu; source {script}; complete -p berth"], capture_output=True, text=True, env=c.env)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("berth", p.stdout)
        function = p.stdout.split("-F ")[1].split()[0]
        ask = f"""source {script}; PATH={os.path.dirname(BERTH)}:$PATH
            COMP_WORDS=(berth "$@"); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
            {function} berth "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"; printf '%s\\n' "${{COMPREPLY[@]}}" """

        def completed(*words):
            r = subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, env={**c.env, "BERTH_SERVER": c.grpc_address})
            return [w.strip() for w in r.stdout.split("\n") if w.strip()]

        self.assertIn("describe", completed("des"))
        self.assertEqual(completed("logs", "wor"), ["worker"])
        for shell in ("zsh", "fish"):
            self.assertIn("berth", c.ok("completion", shell).out)

    # R: A1
    def test_help(self):
        c = self.cluster()
        listed = c.ok("help").out
        for verb in ("dev", "server", "agent", "apply", "run", "get", "describe", "explain", "logs", "exec", "stop", "start", "delete", "retry", "events",
                     "fsck", "sim", "version", "completion"):
            self.assertIn(verb, listed)
            r = c.cli(verb, "--help")
            self.assertEqual(r.code, 0, f"{verb}: {r}")
            self.assertIn(verb, r.out)
        self.assertEqual(c.cli().code in (0, 2), True)

    # R: C2
    def test_describe_tells_the_story(self):
        c = self.prepared()
        out = c.ok("describe", "worker").out
        for word in ("worker", "Running", c.workload("worker")["assigned_node"], "WorkloadStarted"):
            self.assertIn(word, out)
        self.assertIn("node-1", c.ok("describe", "node", "node-1").out)

    # R: A9
    def test_a_retry_says_whether_anything_is_tried_again(self):
        c = self.cluster(nodes=1)
        c.apply("runs")
        c.apply("fails", command=["false"], restart="never", retry={"max_attempts": 1})
        c.wait_phase("runs", "Running")
        c.wait_phase("fails", "Failed")
        self.assertEqual(c.ok("retry", "runs").out, "workload/runs is Running: there is nothing to try again\n")
        self.assertEqual(c.ok("retry", "fails").out, "workload/fails is tried again\n")

    # R: C2
    def test_watch_shows_changes(self):
        c = self.prepared()
        p = subprocess.Popen([BERTH, "get", "workloads", "--watch"], stdout=subprocess.PIPE, env={**c.env, "BERTH_SERVER": c.grpc_address}, text=True)
        for line in p.stdout:
            if line.startswith("worker"):
                break
        c.apply("fresh")
        for line in p.stdout:
            if line.startswith("fresh") and "Running" in line:
                break
        p.send_signal(signal.SIGINT)
        p.wait(10)
        p.stdout.close()

    def hang_up_after_the_settings(self, address, listener, rudely):
        """One connection: its server's first bytes are let through, so that the client sends its request, which goes nowhere."""
        host, port = address.rsplit(":", 1)
        client, _ = listener.accept()
        with client, socket.create_connection((host, int(port))) as server:
            server.sendall(client.recv(65536))
            client.sendall(server.recv(65536))
            time.sleep(0.3)
            if not rudely:
                client.recv(65536)  # else what is unread makes the kernel say that the connection is reset

    # R: A9
    def test_a_change_whose_answer_did_not_come_may_have_happened(self):
        c = self.cluster(nodes=0)
        for args, stdin, words in ((("apply", "-f", "-"), json.dumps(c.manifest("unsure")), "may have happened; it can be sent again safely"),
                                   (("get", "workloads"), None, "try again"), (("token", "create", "x", "--role", "viewer"), None, "look before you repeat it")):
            for rudely in (False, True):
                with socket.create_server(("127.0.0.1", 0)) as listener:
                    thread = threading.Thread(target=self.hang_up_after_the_settings, args=(c.grpc_address, listener, rudely))
                    thread.start()
                    r = c.cli(*args, stdin=stdin, env={"BERTH_SERVER": "127.0.0.1:%d" % listener.getsockname()[1]})
                    thread.join()
                self.assertEqual(r.code, 6, r)
                self.assertIn("went away", r.err)
                self.assertIn(words, r.err)
                self.assertNotIn("TLS", r.err)
        self.assertIn("unsure", c.ok("apply", "-f", "-", stdin=json.dumps(c.manifest("unsure"))).out)

    def follow_over_a_restart(self, c, *args):
        p = subprocess.Popen([BERTH, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**c.env, "BERTH_SERVER": c.grpc_address})
        lines = []
        for how in ("kill", "stop"):
            c.apply(f"{args[0]}-before-{how}")
            self.read_until(p, lines, f"{args[0]}-before-{how}")
            c.restart_server(how)
            c.apply(f"{args[0]}-after-{how}")
            self.read_until(p, lines, f"{args[0]}-after-{how}")
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=10)
        self.assertEqual(p.returncode, 0, err)
        self.assertIn("trying again", err)
        return lines + rest.splitlines()

    def read_until(self, p, lines, word):
        for line in p.stdout:
            lines.append(line)
            if word in line:
                return
        self.fail(f"{word} did not come, it ended with {p.wait()}: {p.stderr.read()}")

    # R: C29 A9
    def test_following_goes_on_when_the_server_restarts(self):
        c = self.cluster(nodes=0)
        lines = self.follow_over_a_restart(c, "events", "--follow", "--since", "0", "-o", "json")
        seqs = [int(json.loads(line)["seq"]) for line in lines if line.strip()]
        self.assertEqual(seqs, list(range(seqs[0], seqs[0] + len(seqs))), "each once, none lost")
        self.follow_over_a_restart(c, "get", "workloads", "--watch")
