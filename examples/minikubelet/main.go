// Minikubelet is a node agent made of kubeletkit's parts. It runs the pods whose
// manifests are in a directory on a CRI runtime, or without one as processes of the
// machine. Its flags and configuration file are kubelet's, so it can replace a kubelet in
// standalone mode. Build it with
//
//	go build -tags grpcnotrace ./examples/minikubelet
//
// The tag leaves out the request traces of gRPC, which nothing here shows; without it the
// program is larger by a fifth. agent.go has the composition of the agent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/ui"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	_ "github.com/kubeletkit/kubeletkit/runtime/process/early" // supervisors do without client-go
)

func main() {
	process.Init() // the embedded runtime executes this program again for each container
	ctx, stop := withSignals(context.Background())
	klog.SetLogger(logr.Discard()) // commands return what libraries log; an agent has a log
	isAgent := false
	err := client.Run(ctx, os.Args[1:], client.Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Agent: func(ctx context.Context, args []string) error {
			isAgent = true
			return run(ctx, args, func(log logr.Logger) { klog.SetLogger(log) })
		},
		StopPods: func(ctx context.Context, rootDir, endpoint string) error {
			return stopPods(ctx, rootDir, endpoint, os.Stdout)
		},
		More: []*cobra.Command{checkCommand(os.Stdout), ui.Command(os.Stdout)},
	})
	interrupted := !isAgent && ctx.Err() != nil // an agent is stopped by a signal
	stop()
	os.Exit(exitCode(err, interrupted, os.Stderr))
}

// exitCode prints the error and returns the exit code of the program.
func exitCode(err error, interrupted bool, errOut io.Writer) int {
	code := client.ExitCode(0)
	if errors.As(err, &code) {
		return int(code)
	}
	if err != nil {
		fmt.Fprintln(errOut, "minikubelet:", terminal.EscapeLines(err.Error()))
	}
	usage, failure := (*config.UsageError)(nil), (*client.Failure)(nil)
	switch {
	case interrupted:
		return int(client.Interrupted)
	case errors.As(err, &usage):
		return 2
	case errors.As(err, &failure):
		return failure.Code
	case err != nil:
		return 1
	default:
		return 0
	}
}

// run runs the agent. If libraries is not nil, it receives the logger of the agent, for libraries
// that log by klog: that has one logger in a process.
func run(ctx context.Context, args []string, libraries func(logr.Logger)) error {
	settings, err := config.Parse(args)
	if err != nil {
		return err
	}
	if settings.Version {
		// kubeadm's preflight reads this line, and accepts nothing else.
		fmt.Println("Kubernetes " + client.ProgramVersion().Kubernetes)
		fmt.Fprintln(os.Stderr, client.ProgramVersion())
		return nil
	}
	display := terminal.New(settings.Show, os.Stdout, os.Stderr)
	display.SetVerbosity(settings.Verbosity)
	display.SetFormat(settings.LogsJSON(), logModules(settings))
	log := logr.FromSlogHandler(display.Handler())
	if libraries != nil {
		libraries(log.WithName("library"))
	}
	for _, w := range settings.Warnings {
		warn(log, w)
	}
	saveMemory()
	embedded := settings.Embedded
	signals := ctx
	ctx, cancel := drainsFirst(signals, settings)
	defer cancel()
	var left running
	agent := func(ctx context.Context) (err error) {
		left, err = serve(ctx, signals, settings, log, display)
		return err
	}
	if embedded {
		log.Info("Containers are processes of this machine, since no --container-runtime-endpoint is given")
		err = withEmbedded(ctx, settings, log, agent)
	} else {
		err = agent(ctx)
	}
	if text := left.farewell(settings, embedded); text != "" && display.Interactive() {
		fmt.Fprintln(os.Stderr, text)
	} else if text != "" {
		log.Info(text)
	}
	return err
}

// farewell returns a sentence about the containers that still run, "" if there are none.
func (r running) farewell(s *config.Settings, embedded bool) string {
	if r.containers == 0 {
		return ""
	}
	count := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return strconv.Itoa(n) + " " + many
	}
	command := "minikubelet stop --root-dir " + shellWord(s.RootDir)
	what := count(r.containers, "process", "processes")
	if !embedded {
		what = count(r.containers, "container", "containers")
		command += " --container-runtime-endpoint " + shellWord(s.ContainerRuntimeEndpoint)
	}
	verb := "go on running"
	if r.containers == 1 {
		verb = "goes on running"
	}
	return fmt.Sprintf("%s of %s %s; the next agent takes over. To end them: %s", what, count(r.pods, "pod", "pods"),
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
