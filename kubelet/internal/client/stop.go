package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// exitPeriod is how often stop looks whether the agent has exited.
const exitPeriod = 50 * time.Millisecond

var errInterrupted = errors.New("interrupted; the agent goes on ending its pods, and exits then")

// stopCommand is the command stop.
func stopCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "stop", Aliases: []string{"drain"}, Short: "end all pods, and then the agent", GroupID: GroupNode,
		Long: "Each pod has its grace period to end. The manifests stay, so the pods run again when the agent is " +
			"started again.\n\n" +
			"If no agent runs, the command ends the pods that an agent with the embedded runtime has left in the " +
			"root directory; or, " +
			"with --container-runtime-endpoint, all pods of that container runtime.",
		Example: "  minikubelet stop\n  minikubelet drain --by-priority   # as at a shutdown of the machine",
	}, (*call).stop, (*call).stopFlags)
}

func (c *call) stopFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.byPriority, "by-priority", false, "end pods in the order of their priorities, the lowest first, "+
		"in the periods of shutdownGracePeriod or shutdownGracePeriodByPodPriority of the agent; without these, "+
		"critical pods after all others. It needs a running agent")
	fs.StringVar(&c.endpoint, "container-runtime-endpoint", "", "CRI socket of the pods to end if no agent runs "+
		"(default: the embedded runtime)")
}

// stop ends all pods and the agent.
func (c *call) stop(ctx context.Context) error {
	if err := c.noArgs(); err != nil {
		return err
	}
	query := url.Values{}
	if c.byPriority {
		query.Set("by-priority", "true")
	}
	resp, err := c.client.do(ctx, http.MethodPost, control.StopPath, query)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, control.ErrNoAgent) && c.byPriority:
		return fmt.Errorf("%w; only a running agent knows the priorities of the pods: start it, or leave "+
			"--by-priority out", err)
	case errors.Is(err, control.ErrNoAgent):
		return c.StopPods(ctx, c.rootDir, c.endpoint)
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	if err := c.progress(ctx, resp.Body); err != nil {
		return err
	}
	if err := c.awaitExit(ctx); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "The agent has exited.")
	return nil
}

// progress prints what the agent answers until all pods have ended.
func (c *call) progress(ctx context.Context, body io.Reader) error {
	for dec, last := json.NewDecoder(body), ""; ; {
		var p control.Progress
		switch err := dec.Decode(&p); {
		case ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			return fmt.Errorf("the connection to the agent broke before all pods had ended: %w", err)
		case p.Error != "":
			return fmt.Errorf("the agent could not end all pods: %s", p.Error)
		case p.Done:
			fmt.Fprintln(c.Out, "All pods have ended.")
			return nil
		}
		if line := terminal.Escape(Ending(p.Left)); line != last && len(p.Left) > 0 {
			fmt.Fprintln(c.Out, line)
			last = line
		}
	}
}

// Ending returns a line about pods that are ending.
func Ending(pods []string) string {
	if len(pods) == 1 {
		return "1 pod is ending: " + pods[0]
	}
	return fmt.Sprintf("%d pods are ending: %s", len(pods), Some(pods))
}

// Some returns the first names, and the number of the others.
func Some(names []string) string {
	const most = 4
	names = slices.Sorted(slices.Values(names))
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// awaitExit waits until the sockets of the agent and of the embedded runtime are closed,
// so that another agent can be started.
func (c *call) awaitExit(ctx context.Context) error {
	for _, socket := range []string{c.client.socket, filepath.Join(c.rootDir, "process", "cri.sock")} {
		for {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err != nil {
				break
			}
			_ = conn.Close()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(exitPeriod):
			}
		}
	}
	return ctx.Err()
}
