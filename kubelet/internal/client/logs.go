package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// logFlags are the flags of the command logs: kubectl's.
type logFlags struct {
	previous, timestamps, allContainers, prefix, ignoreErrors bool
	tail, limitBytes                                          int64
	since                                                     time.Duration
	sinceTime, selector                                       string
	maxRequests                                               int
	// tailGiven means that tail is not the default.
	tailGiven func() bool
}

// selectedTail is the number of lines of each log if pods are chosen by labels.
const selectedTail = 10

// logsCommand is the command logs.
func logsCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "logs POD", Short: "print what a container has written", GroupID: groupContainers,
		Long: "The flags are kubectl's. With --all-containers or --selector, several logs are printed one after the " +
			"other, or with --follow at the same time.\n" +
			"The log of a pod that is gone from the node is kept for a minute.",
		Example: `  minikubelet logs -f web
  minikubelet logs web -c main --since 10m --tail 100
  minikubelet logs -l app=web --all-containers --prefix`,
	}, (*call).logs, (*call).namespaceFlag, (*call).containerFlag, (*call).logsFlags, (*call).leftFlag)
}

func (c *call) logsFlags(fs *pflag.FlagSet) {
	l := &c.logFlags
	fs.BoolVarP(&c.follow, "follow", "f", false, "follow the log, also of later instances of the container, until "+
		"the pod ends")
	fs.BoolVarP(&l.previous, "previous", "p", false, "print the log of the instance before the last restart")
	fs.BoolVar(&l.timestamps, "timestamps", false, "print the time of each line")
	fs.Int64Var(&l.tail, "tail", -1, "number of lines to print of the end of each log; all if negative (default "+
		"with -l: 10)")
	fs.DurationVar(&l.since, "since", 0, "print what is not older, such as 5s, 2m or 3h")
	fs.StringVar(&l.sinceTime, "since-time", "", "print what is not older than a time, such as 2026-01-02T15:04:05Z")
	fs.Int64Var(&l.limitBytes, "limit-bytes", 0, "number of bytes to print of each log; all if 0")
	fs.BoolVar(&l.allContainers, "all-containers", false, "print the logs of all containers")
	fs.BoolVar(&l.prefix, "prefix", false, "begin each line with the names of the pod and the container")
	fs.BoolVar(&l.ignoreErrors, "ignore-errors", false, "go on with the other logs when one cannot be read")
	fs.StringVarP(&l.selector, "selector", "l", "", "print the logs of the pods with these labels, such as app=web")
	fs.IntVar(&l.maxRequests, "max-log-requests", 5, "number of logs that can be followed at the same time")
	l.tailGiven = func() bool { return fs.Changed("tail") }
}

// logQuery returns the parameters of the requests.
func (c *call) logQuery() (url.Values, error) {
	l := &c.logFlags
	query := url.Values{}
	for name, on := range map[string]bool{"follow": c.follow, "restarts": c.follow, "previous": l.previous,
		"timestamps": l.timestamps} {
		if on {
			query.Set(name, "true")
		}
	}
	tail := l.tail
	if l.selector != "" && !l.tailGiven() {
		tail = selectedTail
	}
	if tail >= 0 {
		query.Set("tailLines", strconv.FormatInt(tail, 10))
	}
	switch {
	case l.limitBytes > 0:
		query.Set("limitBytes", strconv.FormatInt(l.limitBytes, 10))
	case l.limitBytes < 0:
		return nil, c.misused("--limit-bytes must not be negative")
	}
	switch {
	case l.since != 0 && l.sinceTime != "":
		return nil, c.misused("at most one of --since and --since-time can be given")
	case l.since < 0:
		return nil, c.misused("--since must not be negative")
	case l.since > 0:
		// rounded up, as kubectl's
		query.Set("sinceSeconds", strconv.FormatInt(int64((l.since+time.Second-1)/time.Second), 10))
	case l.sinceTime != "":
		if _, err := time.Parse(time.RFC3339, l.sinceTime); err != nil {
			return nil, c.misused(fmt.Sprintf("--since-time %s: want a time such as 2026-01-02T15:04:05Z", l.sinceTime))
		}
		query.Set("sinceTime", l.sinceTime)
	}
	return query, nil
}

// containerLog is a log to print.
type containerLog struct {
	pod       *v1.Pod
	container string
}

// logs prints the logs of containers.
func (c *call) logs(ctx context.Context) error {
	query, err := c.logQuery()
	if err != nil {
		return err
	}
	all, err := c.chosenLogs(ctx)
	if err != nil {
		return err
	}
	if most := c.logFlags.maxRequests; c.follow && len(all) > most {
		return fmt.Errorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, use "+
			"--max-log-requests to increase the limit", len(all), most)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.Err, "No pods found.")
		return nil
	}
	out := &sharedWriter{w: c.Out}
	print := func(l containerLog) error {
		err := c.printLog(ctx, l, query, out, len(all) > 1 && c.follow)
		if err == nil || ctx.Err() != nil { // a signal
			return nil
		}
		if c.logFlags.ignoreErrors {
			fmt.Fprintln(c.Err, terminal.Escape(err.Error()))
			return nil
		}
		return err
	}
	if !c.follow {
		for _, l := range all {
			if err := print(l); err != nil {
				return err
			}
		}
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	ctx = gctx // the first error ends the other requests
	for _, l := range all {
		g.Go(func() error { return print(l) })
	}
	return g.Wait()
}

// chosenLogs returns the logs that the arguments and the flags name.
func (c *call) chosenLogs(ctx context.Context) ([]containerLog, error) {
	l := &c.logFlags
	var pods []*v1.Pod
	switch {
	case l.selector != "" && len(c.args) > 0:
		return nil, c.misused("want the name of a pod or --selector, not both")
	case l.selector != "":
		selector, err := labels.Parse(l.selector)
		if err != nil {
			return nil, c.misused(fmt.Sprintf("--selector %q: %s", l.selector, err))
		}
		found, err := c.client.pods(ctx)
		if err != nil {
			return nil, err
		}
		for _, pod := range found {
			if pod.Namespace == c.podNamespace() && selector.Matches(labels.Set(pod.Labels)) {
				pods = append(pods, pod)
			}
		}
	case len(c.args) == 2 && c.container == "": // kubectl logs POD CONTAINER
		c.container = c.args[1]
		fallthrough
	case len(c.args) == 1 && !l.allContainers:
		pod, container, err := c.target(ctx, c.args[0], true)
		return []containerLog{{pod, container}}, err
	case len(c.args) == 1 && c.container == "":
		pod, err := c.podWithLogs(ctx, c.args[0], true)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	case len(c.args) == 1: // --all-containers and --container, see below
	default:
		return nil, c.misused("want the name of one pod")
	}
	if l.allContainers && c.container != "" {
		return nil, c.misused("at most one of --container and --all-containers can be given")
	}
	var all []containerLog
	for _, pod := range pods {
		if !l.allContainers {
			container, _, err := chooseContainer(pod, c.container)
			if err != nil {
				return nil, err
			}
			all = append(all, containerLog{pod, container})
			continue
		}
		for _, container := range podspec.Containers(&pod.Spec) {
			all = append(all, containerLog{pod, container.Name})
		}
	}
	return all, nil
}

// printLog prints one log. byLine means that others are printed at the same time.
func (c *call) printLog(ctx context.Context, l containerLog, query url.Values, out *sharedWriter, byLine bool) error {
	resp, err := c.client.do(ctx, http.MethodGet, PathOf("containerLogs", l.pod, l.container), query)
	if err != nil {
		return withReason(err, l.pod, l.container)
	}
	defer resp.Body.Close()
	prefix := ""
	if c.logFlags.prefix {
		prefix = fmt.Sprintf("[pod/%s/%s] ", l.pod.Name, l.container)
	}
	if prefix == "" && !byLine {
		_, err = io.Copy(c.Out, resp.Body)
		return err
	}
	return copyLines(out, prefix, resp.Body)
}

// copyLines copies line by line, each with the prefix. Lines of others that are copied at the same
// time may break a line of more than 64 KiB.
func copyLines(w io.Writer, prefix string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for begins := true; ; {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			text := line
			if begins {
				text = append([]byte(prefix), line...)
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
			begins = line[len(line)-1] == '\n'
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// withReason adds why the container does not run, which kubelet's words do not have.
func withReason(err error, pod *v1.Pod, container string) error {
	for s := range podspec.Statuses(&pod.Status) {
		switch {
		case s.Name != container:
		case s.State.Waiting != nil && s.State.Waiting.Message != "":
			return fmt.Errorf("%w: %s", err, terminal.Escape(s.State.Waiting.Message))
		default:
			return err
		}
	}
	if reason := cmp.Or(pod.Status.Reason, pod.Status.Message); reason != "" {
		// the pod has not started, or was refused
		return fmt.Errorf("%w: %s: %s", err, terminal.Escape(pod.Status.Reason), terminal.Escape(pod.Status.Message))
	}
	return err
}
