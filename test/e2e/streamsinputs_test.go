package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// These tests run exec with each pair of flags and each kind of input, since the output of a command can
// be lost at the end of its input. kubectl does only if roundsVariable is set.

// roundsVariable is the number of runs of each, by default 2.
const roundsVariable = "KUBELETKIT_E2E_ROUNDS"

func TestInputsOfExec(t *testing.T) {
	t.Parallel()
	t.Run("containerd", func(t *testing.T) {
		t.Parallel()
		s := newSuite(t, AgentOptions{})
		testInputs(t, s.Net, s.agent)
	})
	t.Run("containerd 1.6", func(t *testing.T) {
		t.Parallel()
		s := newSuiteOn(t, Old, AgentOptions{})
		testInputs(t, s.Net, s.agent)
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		net, err := NewNetNS()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, net.Close()) })
		testInputs(t, net, StartProcessAgent(t, AgentOptions{Net: net}))
	})
}

// testInputs runs minikubelet on the agent.
func testInputs(t *testing.T, net *NetNS, agent *Agent) {
	pod := MakePod("web", Grace(1), Main(Sh("web", Forever)))
	agent.Put(t, pod)
	agent.Await(t, pod, 2*within, Running)
	binary := MinikubeletBinary(t)
	testInputsOf(t, net, func(ctx context.Context, flags ...string) *exec.Cmd {
		return exec.CommandContext(ctx, binary, slices.Concat([]string{"exec", "--root-dir", agent.Root}, flags)...)
	}, FullName(pod))
}

// inputKinds are what a command can have as its input.
var inputKinds = []string{"closed", "null", "file", "pipe", "terminal"}

// typed is the content of the inputs that have one.
const typed = "word\n"

// testInputsOf runs a command in the pod with each pair of flags and each input. Nothing of the output is lost, and
// the exit code is that of the command.
func testInputsOf(t *testing.T, net *NetNS, execCommand func(ctx context.Context, flags ...string) *exec.Cmd,
	pod string) {
	rounds := 2
	if text := os.Getenv(roundsVariable); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	file := filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.WriteFile(file, []byte(typed), 0o600))
	const script = "if [ -t 1 ]; then echo terminal; fi; if read line; then echo got $line; fi; echo problem >&2; " +
		"echo the end; exit 3"
	for _, flags := range [][]string{nil, {"-i"}, {"-t"}, {"-i", "-t"}} {
		stdin, tty := slices.Contains(flags, "-i"), slices.Contains(flags, "-t")
		for _, kind := range inputKinds {
			t.Run(strings.Join(append(flags, kind), " "), func(t *testing.T) {
				want := []string{"the end\n"}
				if stdin && (kind == "file" || kind == "pipe" || kind == "terminal") {
					want = append(want, "got word\n")
				}
				if stdin && tty && kind == "terminal" {
					want = append(want, "terminal\n")
				}
				const refused = "Unable to use a TTY - input is not a terminal or the right kind of file\n"
				wrong, hung, begun := 0, 0, time.Now()
				for run := 0; run < rounds; run++ {
					ctx, cancel := context.WithTimeout(t.Context(), within/2)
					cmd := execCommand(ctx, slices.Concat(flags, []string{pod, "--", "sh", "-c", script})...)
					shown, code := runWithInput(t, net, cmd, kind, file)
					late := ctx.Err() != nil
					cancel()
					// About one in some thousands of commands whose input ends at once does not end on a busy machine:
					// containerd has logged the end of the input, and its shim does not answer.
					if late && hung == 0 {
						t.Logf("a command did not end: %q", shown)
						hung++
						run--
						continue
					}
					ok := code == 3 && strings.Contains(shown, "problem\n") &&
						strings.Contains(shown, refused) == (stdin && tty && kind != "terminal")
					for _, text := range []string{"the end\n", "got word\n", "terminal\n"} {
						ok = ok && strings.Contains(shown, text) == slices.Contains(want, text)
					}
					if !ok {
						if wrong++; wrong <= 3 {
							t.Errorf("exit code %d, shown: %q", code, shown)
						}
					}
				}
				assert.Zerof(t, wrong, "of %d runs", rounds)
				t.Logf("%d runs in %s, %d wrong", rounds, time.Since(begun).Round(time.Millisecond), wrong)
			})
		}
	}
}

// runWithInput runs a command with an input of the kind, and returns what it prints and its exit code.
func runWithInput(t *testing.T, net *NetNS, cmd *exec.Cmd, kind, file string) (shown string, code int) {
	t.Helper()
	if kind == "terminal" {
		shown = InTerminal(t, net, cmd, 80, 24, typed)
		return strings.ReplaceAll(shown, "\r\n", "\n"), cmd.ProcessState.ExitCode()
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	switch kind {
	case "closed":
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec "$@" <&-`, "sh"}, cmd.Args...)
	case "file":
		f, err := os.Open(file)
		require.NoError(t, err)
		defer f.Close()
		cmd.Stdin = f
	case "pipe":
		cmd.Stdin = strings.NewReader(typed)
	}
	require.NoError(t, net.Do(cmd.Start))
	if err := cmd.Wait(); !errors.As(err, new(*exec.ExitError)) {
		require.NoError(t, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
