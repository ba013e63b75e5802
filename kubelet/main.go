package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/ui"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	_ "github.com/kubeletkit/kubeletkit/runtime/process/early" // supervisors do without client-go
)

// Main is the function main of a kubelet: it runs what the arguments of the process name, the kubelet itself or one of
// its commands, and ends the process with kubelet's exit code or that of the command. SIGINT and SIGTERM end the
// kubelet; a second one ends the process at once. It reports to systemd, and sets the logger of klog.
func Main(opts Options) {
	process.Init() // the embedded runtime executes this program again for each container
	ctx, stop := withSignals(context.Background())
	klog.SetLogger(logr.Discard()) // commands return what libraries log; a kubelet has a log
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	isKubelet := false
	opts.process.onAgent = func() { isKubelet = true }
	opts.process.onNew = func(log logr.Logger) *systemd.Notifier {
		klog.SetLogger(log.WithName("library"))
		saveMemory()
		return systemd.FromEnvironment() // before there are child processes
	}
	err := execute(ctx, opts, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	interrupted := !isKubelet && ctx.Err() != nil // a kubelet is stopped by a signal
	stop()
	os.Exit(exitCode(opts.program(), err, interrupted, os.Stderr))
}

// exitCode prints the error and returns the exit code of the program.
func exitCode(program config.Program, err error, interrupted bool, errOut io.Writer) int {
	_, ofContainer := errors.AsType[client.ExitCode](err)
	if err != nil && !ofContainer {
		fmt.Fprintf(errOut, "%s: %s\n", program, terminal.EscapeLines(err.Error()))
	}
	if interrupted && !ofContainer {
		return int(client.Interrupted)
	}
	return ExitCode(err)
}

// Command returns the command of a kubelet for a program with a main of its own. It is that of [Main] with all that is
// below it, and changes nothing of the process: its context ends the kubelet, and its streams are those of the program.
// [ExitCode] returns the exit code of its error.
func Command(opts Options) *cobra.Command {
	return &cobra.Command{
		Use: opts.program().String(), Short: "run pods on this machine",
		DisableFlagParsing: true, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return execute(cmd.Context(), opts, args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

// ExitCode returns the exit code of a program whose [Command] or [Load] has returned the error: 0 without an error,
// that of the command in a container for exec, 2 if the arguments are wrong, and otherwise 1 or the code that the help
// of the command has.
func ExitCode(err error) int {
	if code, ok := errors.AsType[client.ExitCode](err); ok {
		return int(code)
	}
	if failure, ok := errors.AsType[*client.Failure](err); ok {
		return failure.Code
	}
	if _, ok := errors.AsType[*config.UsageError](err); ok {
		return 2
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		return 1
	}
	return 0
}

// execute runs the kubelet or the command that the arguments name.
func execute(ctx context.Context, opts Options, args []string, in io.Reader, out, errOut io.Writer) error {
	if err := opts.validateProgram(); err != nil {
		return err
	}
	opts.process.out, opts.process.err = out, errOut
	return client.Run(ctx, args, client.Env{
		Program: opts.program(), Version: opts.Version, In: in, Out: out, Err: errOut,
		Agent: func(ctx context.Context, args []string) error {
			if opts.process.onAgent != nil {
				opts.process.onAgent()
			}
			return run(ctx, args, opts)
		},
		StopPods: func(ctx context.Context, rootDir, endpoint string) error {
			return stopPods(ctx, rootDir, endpoint, out)
		},
		Left: func(ctx context.Context, rootDir, endpoint string) (http.Handler, string, error) {
			return left(ctx, opts.program(), rootDir, endpoint)
		},
		More:     []*cobra.Command{checkCommand(opts.program(), out), ui.Command(opts.program(), out)},
		Commands: opts.Commands,
	})
}

// run runs the kubelet that the flags describe.
func run(ctx context.Context, args []string, opts Options) error {
	config, err := Load(args, opts)
	if err != nil {
		return err
	}
	switch config.settings.Version {
	case "raw":
		fmt.Fprintf(opts.process.out, "%#v\n", opts.version().Raw())
		return nil
	case "true":
		// kubeadm's preflight reads this line, and accepts nothing else.
		fmt.Fprintln(opts.process.out, "Kubernetes "+opts.version().Kubernetes)
		fmt.Fprintln(opts.process.err, opts.version())
		return nil
	}
	starting, cancel := drainsFirst(ctx, config.settings)
	defer cancel()
	k, err := New(starting, config)
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil && errors.Is(err, cause):
		return nil // it was stopped while it started
	case err != nil:
		return err
	}
	return k.Run(ctx)
}

// version returns the version of the program.
func (o *Options) version() client.Version { return client.ProgramVersion(o.program(), o.Version) }

// logger returns the logger of a kubelet, and the display that shows its pods. own means that the log is that of the
// display.
func (o *Options) logger(s *config.Settings) (log logr.Logger, display *terminal.Display, own bool) {
	if o.process.err == nil {
		return logging.OrDefault(o.Logger), terminal.New(terminal.None, io.Discard, io.Discard, o.program().Env), false
	}
	display = terminal.New(s.Show, o.process.out, o.process.err, o.program().Env)
	display.SetVerbosity(s.Verbosity)
	display.SetFormat(s.LogsJSON(), logModules(s))
	if o.Logger.GetSink() != nil {
		return o.Logger, display, false
	}
	return logr.FromSlogHandler(display.Handler()), display, true
}

// endpointOf returns the CRI socket of a container runtime, "" for the embedded one.
func endpointOf(s *config.Settings) string {
	if s.Embedded {
		return ""
	}
	return s.ContainerRuntimeEndpoint
}

// endpointFlag returns the flag of a CRI socket as it is typed, without a value if the endpoint is "".
func endpointFlag(endpoint string) string {
	const name = "--container-runtime-endpoint"
	if endpoint == "" {
		return name
	}
	return name + " " + shellWord(endpoint)
}

// farewell returns a sentence about the containers that still run, "" if there are none. The endpoint is "" for the
// embedded runtime.
func farewell(r local.Running, program config.Program, rootDir, endpoint string) string {
	if r.Containers == 0 || program.OwnRuntime {
		return ""
	}
	count := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return strconv.Itoa(n) + " " + many
	}
	command := program.String() + " stop --root-dir " + shellWord(rootDir)
	what := count(r.Containers, "process", "processes")
	if endpoint != "" {
		what = count(r.Containers, "container", "containers")
		command += " " + endpointFlag(endpoint)
	}
	verb := "go on running"
	if r.Containers == 1 {
		verb = "goes on running"
	}
	return fmt.Sprintf("%s of %s %s; the next agent takes over. To end them: %s", what, count(r.Pods, "pod", "pods"),
		verb, command)
}

// shellWord returns the text as one word of a POSIX shell.
func shellWord(text string) string {
	if text != "" && !strings.ContainsAny(text, " \t\n\"'`\\$&|;<>()*?[]#~!{}") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// silent returns a logger that discards. The zero value, which logr.Discard returns, would log by package slog.
func silent() logr.Logger { return logr.FromSlogHandler(slog.DiscardHandler) }

// warn logs a warning, a level that logr does not have.
func warn(log logr.Logger, text string) { slog.New(logr.ToSlogHandler(log)).Warn(text) }
