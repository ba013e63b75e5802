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
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	_ "github.com/kubeletkit/kubeletkit/runtime/process/early" // supervisors do without client-go
)

func main() {
	process.Init() // the embedded runtime executes this program again for each container
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], func(log logr.Logger) { klog.SetLogger(log) })
	stop()
	switch code := client.ExitCode(0); {
	case errors.Is(err, pflag.ErrHelp):
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "minikubelet:", terminal.EscapeLines(err.Error()))
		os.Exit(1)
	}
}

// run runs the agent, or a command that connects to it. If libraries is not nil, it receives the
// logger of the agent, for libraries that log by klog: that has one logger in a process.
func run(ctx context.Context, args []string, libraries func(logr.Logger)) error {
	if name, args, ok := client.Split(args, config.Flags()); ok {
		return client.Run(ctx, name, args, client.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, StopPods: func(ctx context.Context, rootDir, endpoint string) error {
			return stopPods(ctx, rootDir, endpoint, os.Stdout)
		}})
	}
	settings, err := config.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Printf("%s\nFlags of the agent:\n%s", client.Usage(), config.Flags().FlagUsages())
	}
	if err != nil {
		return err
	}
	if settings.Version {
		// kubeadm's preflight reads this line, and accepts nothing else.
		fmt.Println("Kubernetes " + clusternode.DefaultKubeletVersion)
		fmt.Fprintln(os.Stderr, version())
		return nil
	}
	display := terminal.New(settings.Show, os.Stdout, os.Stderr)
	display.SetVerbosity(settings.Verbosity)
	log := logr.FromSlogHandler(display.Handler())
	if libraries != nil {
		libraries(log.WithName("library"))
	}
	for _, w := range settings.Warnings {
		warn(log, w)
	}
	saveMemory()
	embedded := settings.Embedded
	var left running
	agent := func(ctx context.Context) (err error) {
		left, err = serve(ctx, settings, log, display)
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
	return fmt.Sprintf("%s of %s %s; the next agent takes over. To end them: %s", what, count(r.pods, "pod", "pods"), verb, command)
}

// shellWord returns the text as one word of a POSIX shell.
func shellWord(text string) string {
	if text != "" && !strings.ContainsAny(text, " \t\n\"'`\\$&|;<>()*?[]#~!{}") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// warn logs a warning, a level that logr does not have.
func warn(log logr.Logger, text string) { slog.New(logr.ToSlogHandler(log)).Warn(text) }

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "minikubelet (unknown version)"
	}
	return "minikubelet " + info.Main.Version + " " + info.GoVersion
}
