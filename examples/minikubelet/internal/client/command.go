package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
)

// Env is what commands use of the program that calls them.
type Env struct {
	In       io.Reader // a terminal if it is an *os.File that is one
	Out, Err io.Writer
	// StopPods ends the pods of an agent that does not run. It is called by the command
	// stop with the directory of that agent, and with the endpoint of its container
	// runtime or "" if that is the embedded one.
	StopPods func(ctx context.Context, rootDir, endpoint string) error
}

// ExitCode is the error of an exec whose command ended with another code than 0.
type ExitCode int

func (e ExitCode) Error() string {
	return "the command ended with exit code " + strconv.Itoa(int(e))
}

// command is one of the commands.
type command struct {
	name, alias string
	// synopsis is what follows the name.
	synopsis string
	// short is one line of help, long the paragraphs after it.
	short, long string
	// flags of the command beside --root-dir; nil for none.
	flags func(c *call, fs *pflag.FlagSet)
	run   func(c *call, ctx context.Context) error
}

// call is one call of a command.
type call struct {
	Env
	command command
	client  *client
	args    []string
	// dash is the number of args before "--", or -1.
	dash int

	rootDir, endpoint string
	// namespace is "" if it was not given.
	namespace               string
	container               string
	follow                  bool
	logFlags                logFlags
	dryRun, all, containers bool
	stdin, tty, quiet       bool
	addresses               []string
	noPreserve              bool
}

// commands returns all commands in the order of the help.
func commands() []command {
	return []command{
		{
			name: "pods", short: "list the pods", flags: (*call).namespaceFlag, run: (*call).pods,
		}, {
			name: "describe", synopsis: "POD", short: "show the state of a pod and its latest events",
			long:  "A pod that is gone from the node can be described until 100 others are gone after it.",
			flags: (*call).namespaceFlag, run: (*call).describe,
		}, {
			name: "history", synopsis: "POD", short: "show what happened to a pod, and why",
			long: "Each line has the time, the age, the stage and a sentence. The stages: something was seen, by an event of the runtime, in a list of all " +
				"pods or when the agent inspected the pod; something was decided; or it was done. Repeats are counted in one line.\n" +
				"The history of a pod that is gone from the node is kept for an hour.",
			flags: (*call).historyFlags, run: (*call).history,
		}, {
			name: "logs", synopsis: "POD", short: "print what a container has written",
			long: "The flags are kubectl's. With --all-containers or --selector, several logs are printed one after the other, or with --follow at the same time.\n" +
				"The log of a pod that is gone from the node is kept for a minute.",
			flags: (*call).logsFlags, run: (*call).logs,
		}, {
			name: "exec", synopsis: "POD -- COMMAND [ARG...]", short: "run a command in a container",
			long:  "The exit code is that of the command. For a shell: minikubelet exec -it POD -- sh",
			flags: (*call).streamFlags, run: (*call).exec,
		}, {
			name: "attach", synopsis: "POD", short: "connect to the main process of a container",
			long:  "The container goes on when the command is ended. Its spec decides whether it has a terminal (tty) and an input (stdin).",
			flags: (*call).streamFlags, run: (*call).attach,
		}, {
			name: "port-forward", synopsis: "POD [LOCAL:]REMOTE...", short: "forward ports of this machine to a pod",
			long:  "REMOTE is the number or the name of a port of the pod. LOCAL is the same if it is not given; if it is empty, as in :80, it is chosen.",
			flags: (*call).forwardFlags, run: (*call).portForward,
		}, {
			name: "cp", synopsis: "SOURCE DESTINATION", short: "copy files to a container or from one",
			long: "One of the two is a path of this machine, the other one is [NAMESPACE/]POD:PATH. A directory is copied with all that is in it. " +
				"The container needs the program tar. Links in a container are not copied.\n\n" + podHelp,
			flags: (*call).copyFlags, run: (*call).cp,
		}, {
			name: "top", synopsis: "[node]", short: "show what pods use, or what the node uses",
			long:  "CPU is an average of some seconds; m is a thousandth of a processor. Memory is the working set, which the kernel cannot reclaim.",
			flags: (*call).topFlags, run: (*call).top,
		}, {
			name: "images", short: "list the images, and what keeps them", run: (*call).images,
		}, {
			name: "gc", short: "remove images that no pod uses, as the agent does by itself",
			long: "Images are removed if the file system that they are in has reached the high threshold, or if they are too old. " +
				"Those that are pinned, used by a container or young stay in any case.",
			flags: (*call).gcFlags, run: (*call).gc,
		}, {
			name: "stop", alias: "drain", short: "end all pods, and then the agent",
			long: "Each pod has its grace period to end. The manifests stay, so the pods run again when the agent is started again.\n\n" +
				"If no agent runs, the command ends the pods that an agent with the embedded runtime has left in the root directory; or, " +
				"with --container-runtime-endpoint, all pods of that container runtime.",
			flags: (*call).stopFlags, run: (*call).stop,
		}, {
			name: "help", synopsis: "[COMMAND]", short: "explain a command", run: (*call).help,
		},
	}
}

func find(name string) (command, bool) {
	for _, c := range commands() {
		if name != "" && (c.name == name || c.alias == name) {
			return c, true
		}
	}
	return command{}, false
}

func (c *call) namespaceFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&c.namespace, "namespace", "n", "", `namespace of the pod (default: "default", for pods all)`)
}

func (c *call) historyFlags(fs *pflag.FlagSet) {
	c.namespaceFlag(fs)
	fs.BoolVarP(&c.follow, "follow", "f", false, "print what happens until the command is ended")
}

func (c *call) containerFlags(fs *pflag.FlagSet) {
	c.namespaceFlag(fs)
	fs.StringVarP(&c.container, "container", "c", "", "container of the pod (default: its first one)")
}

func (c *call) streamFlags(fs *pflag.FlagSet) {
	c.containerFlags(fs)
	fs.BoolVarP(&c.stdin, "stdin", "i", false, "pass the input on to the container")
	fs.BoolVarP(&c.tty, "tty", "t", false, "the input is a terminal")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "print only what the container writes")
}

func (c *call) forwardFlags(fs *pflag.FlagSet) {
	c.namespaceFlag(fs)
	fs.StringSliceVar(&c.addresses, "address", []string{"localhost"}, "addresses to listen on")
}

func (c *call) copyFlags(fs *pflag.FlagSet) {
	c.containerFlags(fs)
	fs.BoolVar(&c.noPreserve, "no-preserve", false, "do not keep owner and permissions in the container")
}

func (c *call) topFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pods (default: all)")
	fs.BoolVar(&c.containers, "containers", false, "show what each container uses")
}

func (c *call) gcFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.dryRun, "dry-run", false, "only show what would be removed, and why")
	fs.BoolVar(&c.all, "all", false, "remove all images that nothing keeps, whatever space there is")
}

func (c *call) stopFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.endpoint, "container-runtime-endpoint", "", "CRI socket of the pods to end if no agent runs (default: the embedded runtime)")
}

// flagSet returns the flags of the call.
func (c *call) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("minikubelet "+c.command.name, pflag.ContinueOnError)
	fs.Usage = func() { io.WriteString(c.Out, usageOf(c.command)) }
	fs.StringVar(&c.rootDir, "root-dir", config.RunningRootDir(), "root directory of the agent")
	if c.command.flags != nil {
		c.command.flags(c, fs)
	}
	return fs
}

// Split finds the command in the arguments of the program. The flags of the command may
// be before its name and after it. It returns false if there is no command, so that the
// arguments are flags of the agent; agent are those flags.
func Split(args []string, agent *pflag.FlagSet) (name string, rest []string, ok bool) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.Usage = func() {}
	all.SetInterspersed(false)
	all.BoolP("help", "h", false, "")
	add := func(f *pflag.Flag) {
		if all.Lookup(f.Name) == nil {
			all.AddFlag(f)
		}
	}
	agent.VisitAll(add)
	for _, cmd := range commands() {
		(&call{command: cmd}).flagSet().VisitAll(add)
	}
	var before []string
	err := all.ParseAll(args, func(f *pflag.Flag, value string) error {
		before = append(before, "--"+f.Name+"="+value)
		return nil
	})
	if err != nil || all.NArg() == 0 || all.ArgsLenAtDash() == 0 {
		return "", nil, false
	}
	cmd, ok := find(all.Arg(0))
	if !ok {
		return "", nil, false
	}
	return cmd.name, slices.Concat(before, all.Args()[1:]), true
}

// Run runs the command of that name. The error is [pflag.ErrHelp] if help was requested
// and printed, and an [ExitCode] if a command was executed that has failed.
func Run(ctx context.Context, name string, args []string, env Env) error {
	cmd, ok := find(name)
	if !ok {
		return fmt.Errorf("there is no command %q; minikubelet help lists all", name)
	}
	c := &call{Env: env, command: cmd}
	fs := c.flagSet()
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; see minikubelet %s --help", err, cmd.name)
	}
	c.args, c.dash = fs.Args(), fs.ArgsLenAtDash()
	var err error
	if c.rootDir, err = filepath.Abs(c.rootDir); err != nil {
		return fmt.Errorf("--root-dir %s: %w", c.rootDir, err)
	}
	c.client = newClient(c.rootDir)
	return cmd.run(c, ctx)
}

// misused returns an error that refers to the help.
func (c *call) misused(problem string) error {
	return fmt.Errorf("%s: %s; see minikubelet %s --help", c.command.name, problem, c.command.name)
}

// Usage returns an overview of the program and its commands.
func Usage() string {
	var b strings.Builder
	b.WriteString(`Minikubelet is a node agent: it runs the pods of manifests on this machine.

Usage:
  minikubelet [FLAGS]          run the agent; minikubelet --help lists its flags
  minikubelet COMMAND [FLAGS]  talk to the agent that runs with the same --root-dir

Commands:
`)
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-30s %s\n", strings.TrimSpace(c.name+" "+c.synopsis), c.short)
	}
	b.WriteString("\n" + podHelp)
	return b.String()
}

const podHelp = "POD is the name of a pod, with or without the name of the node at its end, or its UID.\n"

// usageOf returns the help of a command.
func usageOf(c command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s.\n", strings.ToUpper(c.short[:1]), c.short[1:])
	if c.long != "" {
		b.WriteString(c.long + "\n")
	}
	b.WriteString("\nUsage:\n")
	for _, name := range []string{c.name, c.alias} {
		if name != "" {
			fmt.Fprintf(&b, "  minikubelet %s\n", strings.TrimSpace(name+" [FLAGS] "+c.synopsis))
		}
	}
	if strings.Contains(c.synopsis, "POD") {
		b.WriteString("\n" + podHelp)
	}
	fmt.Fprintf(&b, "\nFlags:\n%s", (&call{command: c}).flagSet().FlagUsages())
	return b.String()
}

// help prints the overview or the help of a command.
func (c *call) help(context.Context) error {
	if len(c.args) == 0 {
		_, err := io.WriteString(c.Out, Usage())
		return err
	}
	cmd, ok := find(c.args[0])
	if !ok || len(c.args) > 1 {
		return fmt.Errorf("there is no command %q; minikubelet help lists all", strings.Join(c.args, " "))
	}
	_, err := io.WriteString(c.Out, usageOf(cmd))
	return err
}
