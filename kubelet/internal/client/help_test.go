package client

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

func TestFlagsMayBeBeforeTheCommand(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string // "" for the agent
	}{
		{"--runonce", ""},
		{"--root-dir pods", ""},
		{"-- pods", ""},
		{"--no-such-flag pods", ""},
		{"--config /etc/k.yaml --kubeconfig /etc/k.conf --v=2", ""},
		{"pods", "pods"},
		{"ps", "ps"},
		{"get pods", "get pods"},
		{"--root-dir x get pods -n y", "get --root-dir=x pods -n y"},
		{"--root-dir x pods", "pods --root-dir=x"},
		{"--root-dir x -n=ns pods --root-dir y", "pods --root-dir=x --namespace=ns --root-dir y"},
		{"-n ns logs -f web", "logs --namespace=ns -f web"},
		{"-f --tail 3 logs web", "logs --follow=true --tail=3 web"},
		{"-h logs", "logs --help=true"},
		{"--help exec", "exec --help=true"},
		{"exec web -- pods -h", "exec web -- pods -h"},
		{"--root-dir x drain", "drain --root-dir=x"},
		{"help logs", "help logs"},
		{"__complete logs w", "__complete logs w"},
		{"run", ""},
	} {
		args, agent, err := split(newRoot(Env{}), strings.Fields(tt.args))
		require.NoError(t, err, tt.args)
		assert.Equal(t, tt.want == "", agent, tt.args)
		if !agent {
			assert.Equal(t, tt.want, strings.Join(args, " "), tt.args)
		} else {
			assert.Equal(t, strings.TrimPrefix(tt.args, "run"), strings.Join(args, " "))
		}
	}
	for args, want := range map[string]string{
		"pds":                    `there is no command "pds"; did you mean pods?`,
		"lgos web":               `there is no command "lgos"; did you mean logs?`,
		"--root-dir=x manifests": `there is no command "manifests"; minikubelet help lists all`,
		"get pds":                `there is no command "get pds"; did you mean pods?`,
		"help get pods and more": `there is no command "get pods and"`,
		"--config x --v 2 start": `there is no command "start"; did you mean run?`,
		"remove web":             `there is no command "remove"; did you mean delete?`,
		"kill web":               `there is no command "kill"; did you mean delete or stop?`,
		"logs --tial 3 web":      `unknown flag: --tial; did you mean --tail?`,
		"logs --zzzzz web":       `unknown flag: --zzzzz; see minikubelet logs --help`,
		"completion powershell":  `there is no command "completion powershell"`,
	} {
		err := runCommand(t.Context(), strings.Fields(args), &strings.Builder{}, &strings.Builder{})
		require.ErrorContains(t, err, want, args)
		usage := (*config.UsageError)(nil)
		require.ErrorAs(t, err, &usage)
	}
}

// Without arguments there is help, and no agent. With flags alone or with run there is an agent.
func TestOnlyFlagsAndRunStartAnAgent(t *testing.T) {
	for args, want := range map[string]string{
		"": "no agent", "help": "no agent", "run": "", "run --v=2": "--v=2", "--v=2": "--v=2", "--v 2 run --root-dir x": "--v=2 --root-dir x",
		"--root-dir run": "--root-dir run",
	} {
		got := "no agent"
		var out strings.Builder
		require.NoError(t, Run(t.Context(), strings.Fields(args),
			Env{Out: &out, Err: &out, Agent: func(_ context.Context, args []string) error {
				got = strings.Join(args, " ")
				return nil
			}}))
		assert.Equal(t, want, got, args)
		assert.Equal(t, want == "no agent", strings.Contains(out.String(), "Usage:"), args)
	}
	for args, want := range map[string]string{"--help": "help run lists its flags",
		"run --help": "minikubelet run [FLAGS]"} {
		var out strings.Builder
		require.NoError(t, Run(t.Context(), strings.Fields(args),
			Env{Out: &out, Err: &out, Agent: func(_ context.Context, args []string) error {
				_, err := program.Parse(args)
				return err
			}}))
		assert.Contains(t, out.String(), want, args)
		assert.Contains(t, out.String(), "--pod-manifest-path", args)
	}
}

func TestHelp(t *testing.T) {
	help := func(args ...string) string {
		var out strings.Builder
		require.NoError(t, runCommand(t.Context(), args, &out, &strings.Builder{}))
		return out.String()
	}
	all := help("help")
	assert.Equal(t, all, help(), "without arguments")
	for _, c := range newRoot(Env{}).Commands() {
		if c.Name() == "help" || c.Hidden {
			continue
		}
		name := c.Name()
		assert.Contains(t, all, "\n  "+name)
		text := help("help", name)
		assert.Contains(t, text, "minikubelet "+name)
		if name != "version" && name != "completion" && name != "get" && name != "validate" {
			assert.Contains(t, text, "--root-dir")
		}
		if name == runName { // its flags are read by the agent
			continue
		}
		for _, flag := range []string{"-h", "--help"} {
			assert.Equal(t, text, help(name, flag))
			assert.Equal(t, text, help(flag, name))
		}
	}
	assert.NotContains(t, all, "\n  man ")
	assert.Contains(t, help("logs", "--help"), "--previous")
	assert.Contains(t, help("help", "drain"), "End all pods, and then the agent.")
	err := runCommand(t.Context(), []string{"help", "pod"}, &strings.Builder{}, &strings.Builder{})
	require.ErrorContains(t, err, `there is no command "pod"; `)
}
