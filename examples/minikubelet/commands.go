package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/server"
)

const commandUsage = `Commands that talk to the agent which runs with the same --root-dir:
  minikubelet pods [-n NAMESPACE]
  minikubelet describe POD
  minikubelet logs POD [-c CONTAINER] [-f] [--tail N] [--previous] [--timestamps]
  minikubelet exec POD [-c CONTAINER] -- COMMAND [ARG...]
POD is the name of a pod, with or without the node's name at its end, in the namespace
that -n names ("default" if it is not given).
`

// exitCode is the error of an exec whose command ended with another code than 0.
type exitCode int

func (e exitCode) Error() string {
	return "the command ended with exit code " + strconv.Itoa(int(e))
}

// command is one call of a command such as "logs".
type command struct {
	name   string
	client *client
	// namespace is "" if it was not given.
	namespace string
	args      []string
	// dash is how many of args stand before "--", or -1.
	dash     int
	out, err io.Writer

	container                    string
	follow, previous, timestamps bool
	tail                         int
}

// isCommand reports whether the arguments ask for a command and not for the agent.
func isCommand(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case "pods", "describe", "logs", "exec":
		return true
	}
	return false
}

// runCommand runs a command. Its error is [pflag.ErrHelp] if it has shown its
// usage, and an exitCode if that is all there is to say.
func runCommand(ctx context.Context, args []string, out, errOut io.Writer) error {
	c := &command{name: args[0], out: out, err: errOut, tail: -1}
	rootDir := ""
	fs := pflag.NewFlagSet("minikubelet "+c.name, pflag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.Usage = func() { fmt.Fprintf(errOut, "%s\n%s", commandUsage, fs.FlagUsages()) }
	fs.StringVar(&rootDir, "root-dir", runningRootDir(), "directory of the agent's files")
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pod")
	if c.name == "logs" || c.name == "exec" {
		fs.StringVarP(&c.container, "container", "c", "", "container of the pod (default: its first one)")
	}
	if c.name == "logs" {
		fs.BoolVarP(&c.follow, "follow", "f", false, "go on with what is written, also by later instances of the container, while the pod lives")
		fs.BoolVarP(&c.previous, "previous", "p", false, "of the instance before the last restart")
		fs.BoolVar(&c.timestamps, "timestamps", false, "with the time of each line")
		fs.IntVar(&c.tail, "tail", -1, "the last lines only; all if negative")
	}
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	c.args, c.dash = fs.Args(), fs.ArgsLenAtDash()
	c.client = newClient(rootDir)
	switch c.name {
	case "pods":
		return c.pods(ctx)
	case "describe":
		return c.describe(ctx)
	case "logs":
		return c.logs(ctx)
	default:
		return c.exec(ctx)
	}
}

func (c *command) usage(problem string) error {
	return fmt.Errorf("%s: %s; see minikubelet %s --help", c.name, problem, c.name)
}

func (c *command) pods(ctx context.Context) error {
	if len(c.args) > 0 {
		return c.usage(fmt.Sprintf("unexpected argument %q", c.args[0]))
	}
	pods, err := c.client.pods(ctx)
	if err != nil {
		return err
	}
	var wanted []*v1.Pod
	for _, pod := range pods {
		if c.namespace == "" || pod.Namespace == c.namespace {
			wanted = append(wanted, pod)
		}
	}
	if len(wanted) == 0 {
		fmt.Fprintln(c.err, "No pods found.")
		return nil
	}
	_, err = io.WriteString(c.out, table(rowsOf(wanted, c.client.now())))
	return err
}

func (c *command) describe(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.usage("want the name of one pod")
	}
	pod, err := c.pod(ctx, c.args[0])
	if err != nil {
		return err
	}
	_, err = io.WriteString(c.out, describe(pod, c.client.now()))
	return err
}

func (c *command) logs(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.usage("want the name of one pod")
	}
	pod, container, err := c.target(ctx, c.args[0])
	if err != nil {
		return err
	}
	query := url.Values{}
	set := func(name string, on bool) {
		if on {
			query.Set(name, "true")
		}
	}
	set("follow", c.follow)
	set("previous", c.previous)
	set("timestamps", c.timestamps)
	if c.tail >= 0 {
		query.Set("tailLines", strconv.Itoa(c.tail))
	}
	resp, err := c.client.do(ctx, "GET", pathOf("containerLogs", pod, container), query)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(c.out, resp.Body)
	}
	if ctx.Err() != nil {
		return nil // stopped by a signal
	}
	return err
}

func (c *command) exec(ctx context.Context) error {
	if c.dash != 1 || len(c.args) < 2 {
		return c.usage("want the name of one pod, --, and a command")
	}
	pod, container, err := c.target(ctx, c.args[0])
	if err != nil {
		return err
	}
	resp, err := c.client.do(ctx, "POST", pathOf("run", pod, container), url.Values{"command": c.args[1:]})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(c.out, resp.Body); err != nil {
		return err
	}
	code, err := strconv.Atoi(resp.Header.Get(server.ExitCodeHeader))
	if err != nil {
		return errors.New("the agent did not tell the exit code of the command")
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// pod finds the pod that a name means.
func (c *command) pod(ctx context.Context, name string) (*v1.Pod, error) {
	pods, err := c.client.pods(ctx)
	if err != nil {
		return nil, err
	}
	namespace := c.namespace
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return choosePod(pods, namespace, name)
}

// target finds the pod and the container that are meant.
func (c *command) target(ctx context.Context, name string) (*v1.Pod, string, error) {
	pod, err := c.pod(ctx, name)
	if err != nil {
		return nil, "", err
	}
	container, note, err := chooseContainer(pod, c.container)
	if err == nil && note != "" {
		fmt.Fprintln(c.err, note)
	}
	return pod, container, err
}

func pathOf(api string, pod *v1.Pod, container string) string {
	return "/" + api + "/" + url.PathEscape(pod.Namespace) + "/" + url.PathEscape(pod.Name) + "/" + url.PathEscape(container)
}
