package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// Env is what commands use of the program that calls them.
type Env struct {
	// Program is the program. Its name takes the place of "minikubelet" in the help.
	Program config.Program
	// Version is the version of the program; "" is that of its main module.
	Version  string
	In       io.Reader // a terminal if it is an *os.File that is one
	Out, Err io.Writer
	// Agent runs the agent. It is called with the arguments of the program if they name no
	// command. If they request help, its error is [pflag.ErrHelp], and the help is printed.
	Agent func(ctx context.Context, args []string) error
	// StopPods ends the pods of an agent that does not run. It is called by the command
	// stop with the directory of that agent, and with the endpoint of its container
	// runtime or "" if that is the embedded one.
	StopPods func(ctx context.Context, rootDir, endpoint string) error
	// Left returns a handler that answers GET requests from what an agent that does not run has left in its root
	// directory and in its container runtime, and sentences about what goes on running. The endpoint is "" for the
	// runtime of the agent that was started last. nil: commands show nothing without an agent.
	Left func(ctx context.Context, rootDir, endpoint string) (handler http.Handler, text string, err error)
	// More are further commands, whose texts have the name of the program as those of this package. Commands are those
	// of the program; without a group they are among the other commands.
	More, Commands []*cobra.Command

	// For tests: nil is time.Now, 0 the width of the terminal, false colors only on a terminal, and 0 watchPeriod.
	now     func() time.Time
	width   int
	colored bool
	period  time.Duration
}

// The groups of commands in the help.
const (
	groupPods       = "pods"
	groupContainers = "containers"
	// GroupNode is the group of the commands about the whole node.
	GroupNode  = "node"
	groupOther = "other"
)

// newRoot returns the command line.
func newRoot(e Env) *cobra.Command {
	root := &cobra.Command{
		Use:   e.Program.String(),
		Short: e.Program.String() + " is a node agent: it runs the pods of manifests on this machine.",
		Example: `  minikubelet validate manifests
  minikubelet run --pod-manifest-path manifests
  minikubelet pods                          # in another terminal`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.Flags().AddFlagSet(e.Program.Flags())
	root.AddGroup(
		&cobra.Group{ID: groupPods, Title: "Pods:"}, &cobra.Group{ID: groupContainers, Title: "Containers:"},
		&cobra.Group{ID: GroupNode, Title: "Node:"}, &cobra.Group{ID: groupOther, Title: "Other commands:"},
	)
	root.AddCommand(podsCommand(e), getCommand(e), describeCommand(e), historyCommand(e), eventsCommand(e),
		inspectCommand(e), topCommand(e), validateCommand(e))
	root.AddCommand(restartCommand(e), deleteCommand(e))
	root.AddCommand(logsCommand(e), execCommand(e), attachCommand(e), portForwardCommand(e), cpCommand(e))
	root.AddCommand(agentCommand(e), statusCommand(e), imagesCommand(e), gcCommand(e), stopCommand(e))
	root.AddCommand(e.More...)
	root.AddCommand(versionCommand(e), manCommand(e))
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	completion := commandNamed(root, "completion")
	completion.RemoveCommand(commandNamed(completion, "powershell"))
	completion.Args, completion.RunE = nil, onlyBelow
	for _, shell := range completion.Commands() {
		shell.Short = "print the script for " + shell.Name()
	}
	completion.Short, completion.Long = "print a script that completes commands in a shell",
		"The help of each shell says how the script is loaded."
	for name, words := range meanings() {
		if cmd := commandNamed(root, name); cmd != nil {
			cmd.SuggestFor = strings.Fields(words)
		}
	}
	hideHelpFlag(root)
	rename(root, e.Program.String())
	for _, cmd := range e.Commands {
		if same := commandNamed(root, cmd.Name()); same != nil {
			root.RemoveCommand(same) // that of the program is meant
		}
		if !root.ContainsGroup(cmd.GroupID) {
			cmd.GroupID = groupOther
		}
		root.AddCommand(cmd)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _, _ = io.WriteString(e.Out, help(cmd, e.helpWidth())) })
	root.SetUsageFunc(func(*cobra.Command) error { return nil })
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if near := config.NearFlags(err, cmd.Flags()); near != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, near)
		} else {
			err = fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
		}
		return &config.UsageError{Err: err}
	})
	return root
}

// meanings returns the words of other programs for which a command is suggested, by its name.
func meanings() map[string]string {
	return map[string]string{
		"pods": "ls list containers container pod", "get": "node nodes", "describe": "show desc", "logs": "tail journal",
		"exec": "sh shell ssh enter", "cp": "copy", "delete": "remove del kill destroy evict", "restart": "reload reset bounce",
		"run": "start up create apply daemon serve", "stop": "down shutdown kill", "status": "info health healthz state",
		"images": "image pull", "gc": "prune clean cleanup df", "top": "stats usage", "validate": "lint verify",
		"ui": "dashboard web", "port-forward": "forward proxy", "version": "about", "inspect": "dump",
	}
}

// rename puts the name of the program into the texts of the command and of those below it, which have "minikubelet".
func rename(cmd *cobra.Command, name string) {
	cmd.Long = strings.ReplaceAll(cmd.Long, "minikubelet", name)
	cmd.Example = strings.ReplaceAll(cmd.Example, "minikubelet", name)
	for _, below := range cmd.Commands() {
		rename(below, name)
	}
}

// hideHelpFlag leaves the flag out of the help of the command, and of those below it.
func hideHelpFlag(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	_ = cmd.Flags().MarkHidden("help") // it is there
	for _, below := range cmd.Commands() {
		hideHelpFlag(below)
	}
}

// runName is the name of the command that runs the agent.
const runName = "run"

// agentCommand is the command run, for the help and for completion: [Run] calls [Env].Agent for it.
func agentCommand(e Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: runName, Short: "run the agent", GroupID: GroupNode,
		Long: "The flags are kubelet's, so run may be left out: minikubelet --pod-manifest-path manifests runs the agent too.",
		Example: `  minikubelet run --pod-manifest-path manifests
  minikubelet run --config kubelet.yaml --kubeconfig kubelet.conf`,
		Run: func(*cobra.Command, []string) {},
	}
	cmd.Flags().AddFlagSet(e.Program.Flags())
	return cmd
}

// Run runs the command that the arguments of the program name, the agent if they name none, and
// prints the help if there are none. The error is a [config.UsageError] if the arguments are wrong,
// and an [ExitCode] if a command was executed that has failed.
func Run(ctx context.Context, args []string, e Env) error {
	root := newRoot(e)
	if len(args) == 0 {
		return root.Help()
	}
	rest, agent, err := split(root, args)
	if err != nil {
		return err
	}
	if agent {
		err := e.Agent(ctx, rest)
		if errors.Is(err, pflag.ErrHelp) {
			about := root
			if len(rest) < len(args) { // without the word run
				about = commandNamed(root, runName)
			}
			err = about.Help()
		}
		return err
	}
	root.SetArgs(rest)
	return root.ExecuteContext(ctx)
}

// split finds the command in the arguments of the program. The flags of the command may be before
// its name; they are moved behind it. If there is no command, or it is run, the rest is flags of the agent.
func split(root *cobra.Command, args []string) (out []string, agent bool, err error) {
	if args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd {
		return args, false, nil
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.Usage = func() {}
	all.SetInterspersed(false)
	all.BoolP("help", "h", false, "")
	add := func(f *pflag.Flag) {
		if all.Lookup(f.Name) == nil {
			all.AddFlag(f)
		}
	}
	root.Flags().VisitAll(add)
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(add)
	}
	var before []string
	err = all.ParseAll(args, func(f *pflag.Flag, value string) error {
		before = append(before, "--"+f.Name+"="+value)
		return nil
	})
	if err != nil || all.NArg() == 0 || all.ArgsLenAtDash() == 0 {
		return args, true, nil
	}
	name := all.Arg(0)
	if name == runName {
		return slices.Concat(before, all.Args()[1:]), true, nil
	}
	if commandNamed(root, name) == nil {
		return nil, false, unknown(root, name)
	}
	return slices.Concat([]string{name}, before, all.Args()[1:]), false, nil
}

// commandNamed returns the command of that name or alias below parent, nil if there is none.
func commandNamed(parent *cobra.Command, name string) *cobra.Command {
	for _, cmd := range parent.Commands() {
		if cmd.Name() == name || cmd.HasAlias(name) {
			return cmd
		}
	}
	return nil
}

// onlyBelow is what a command does that only has commands below it.
func onlyBelow(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknown(cmd, args[0])
	}
	return cmd.Help()
}

// unknown returns the error of a word that is no command below parent.
func unknown(parent *cobra.Command, name string) error {
	text := fmt.Sprintf("there is no command %q", strings.TrimPrefix(parent.CommandPath()+" "+name,
		parent.Root().Name()+" "))
	var near []string
	for _, cmd := range parent.Commands() {
		if slices.Contains(cmd.SuggestFor, name) { // what is meant, whatever is like it
			near = append(near, cmd.Name())
		}
	}
	if parent.SuggestionsMinimumDistance = 2; len(near) == 0 {
		near = parent.SuggestionsFor(name)
	}
	if len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	} else {
		text += "; " + parent.Root().Name() + " help lists all"
	}
	return &config.UsageError{Err: errors.New(text)}
}

// ExitCode is the error of an exec whose command ended with another code than 0, and of a status that has printed what
// is wrong.
type ExitCode int

func (e ExitCode) Error() string {
	return "the command ended with exit code " + strconv.Itoa(int(e))
}

// Failure is an error with an exit code of its own.
type Failure struct {
	Code int
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// call is one call of a command.
type call struct {
	Env
	cmd    *cobra.Command
	client *client
	args   []string
	// dash is the number of args before "--", or -1.
	dash int

	rootDir, endpoint string
	byPriority        bool
	// showsLeft means that the command shows what an agent has left if none runs.
	showsLeft bool
	// usedLeft means that it has.
	usedLeft bool
	// namespace is "" if it was not given.
	namespace                        string
	allNamespaces                    bool
	container                        string
	output                           output
	follow                           bool
	logFlags                         logFlags
	listFlags                        listFlags
	types                            []string
	dryRun, all, containers, devices bool
	stdin, tty, quiet                bool
	since                            time.Duration
	addresses                        []string
	noPreserve                       bool
	moveTo                           string
	ofNode                           bool // describe node
}

// command gives cmd its flags, beside --root-dir, and what it does.
func (e Env) command(cmd *cobra.Command, run func(*call, context.Context) error,
	flags ...func(*call, *pflag.FlagSet)) *cobra.Command {
	c := &call{Env: e, cmd: cmd}
	fs := cmd.Flags()
	fs.StringVar(&c.rootDir, "root-dir", "", "root directory of the agent (default: that of an agent without the flag)")
	for _, add := range flags {
		add(c, fs)
	}
	c.complete()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.take(args)
		c.dash = cmd.ArgsLenAtDash()
		if err := c.connect(); err != nil {
			return err
		}
		c.client.left = c.useLeft
		err := run(c, cmd.Context())
		if err == nil && c.usedLeft {
			return statusNotRunning
		}
		return err
	}
	return cmd
}

// take sets the arguments. The first one may be pod/POD, or NAMESPACE/POD, or the path of a manifest.
func (c *call) take(args []string) {
	c.args = slices.Clone(args)
	if len(args) == 0 || !strings.Contains(c.cmd.Use, " POD") {
		return
	}
	c.ofNode = c.cmd.Name() == "describe" && isNode(args[0])
	if c.cmd.Name() == "describe" && len(args) > 1 && slices.Contains([]string{"pod", "pods", "po"}, args[0]) {
		// as kubectl
		args = args[1:]
		c.args = c.args[1:]
	}
	name := strings.TrimPrefix(strings.TrimPrefix(args[0], "pod/"), "pods/")
	if namespace, pod, ok := strings.Cut(name, "/"); ok && namespace != "" {
		c.namespace, name = namespace, pod
	}
	c.args[0] = name
}

// connect sets the client of the agent.
func (c *call) connect() error {
	dir, err := c.Program.AgentRootDir(c.rootDir, c.endpoint)
	if err != nil {
		return err
	}
	c.rootDir, c.client = dir, newClient(dir)
	if c.now != nil {
		c.client.now = c.now
	}
	return nil
}

// misused returns an error that refers to the help.
func (c *call) misused(problem string) error {
	return &config.UsageError{Err: fmt.Errorf("%s: %s; see %s --help", c.cmd.Name(), problem, c.cmd.CommandPath())}
}

// noArgs returns an error if the command has arguments.
func (c *call) noArgs() error {
	if len(c.args) == 0 {
		return nil
	}
	return c.misused(fmt.Sprintf("unexpected argument %q", c.args[0]))
}

func (c *call) namespaceFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&c.namespace, "namespace", "n", "", `namespace of the pod (default "default")`)
}

func (c *call) namespacesFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pods (default: all)")
	fs.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "the pods of all namespaces, whatever --namespace is")
}

// inNamespace reports whether a list has the pods of the namespace.
func (c *call) inNamespace(namespace string) bool {
	return c.allNamespaces || c.namespace == "" || c.namespace == namespace
}

func (c *call) followFlag(fs *pflag.FlagSet) {
	fs.BoolVarP(&c.follow, "follow", "f", false, "print what happens until the command is ended")
}

func (c *call) containerFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&c.container, "container", "c", "", "container of the pod (default: its first one)")
}
