package prober

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// maxOutput is how much of a command's output or a response's body is read, in
// bytes, as in kubelet.
const maxOutput = 10 << 10

// execHandler runs commands in containers.
type execHandler struct{ rt runtime.Execer }

func (execHandler) Name() string { return "exec" }

func (execHandler) Probe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	return specProbe(c, kind, func(p *v1.Probe) bool { return p.Exec != nil })
}

func (h execHandler) Check(ctx context.Context, t Target) (Outcome, string, error) {
	command, err := expandAll(t.Probe.Exec.Command, t.Container.Env)
	if err != nil {
		return Failure, err.Error(), nil
	}
	res, err := h.rt.Exec(ctx, t.ContainerID, command, t.Timeout)
	switch {
	case ctx.Err() != nil:
		return Unknown, "", context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		// kubelet's text (cri-client, ErrCommandTimedOut).
		text := strings.Join(command, " ")
		return Failure, fmt.Sprintf("command timed out: %q timed out after %s", text[:min(len(text), maxOutput)],
			t.Timeout), nil
	case err != nil:
		return Unknown, "", err
	}
	output := string(res.Output[:min(len(res.Output), maxOutput)])
	if res.ExitCode != 0 {
		if strings.TrimSpace(output) == "" {
			output = fmt.Sprintf("the command exited with code %d and no output", res.ExitCode)
		}
		return Failure, output, nil
	}
	return Success, output, nil
}

// expandAll replaces references to the container's variables in a command. As in
// kubelet, only values in the spec are known here; others are empty. No process can have
// more than [podspec.MaxArguments] of arguments.
func expandAll(command []string, env []v1.EnvVar) ([]string, error) {
	values := make(map[string]string, len(env))
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	out, left := make([]string, len(command)), podspec.MaxArguments
	for i := range command {
		var err error
		if out[i], err = podspec.ExpandLimit(command[i], left, lookup); err != nil {
			return nil, fmt.Errorf("exec.command[%d]: %w", i, err)
		}
		left -= len(out[i])
	}
	return out, nil
}
