// Minikubelet is a node agent made of kubeletkit's parts: it runs the pods whose
// manifests lie in a directory on a CRI runtime. Its flags and configuration
// file are kubelet's, so it can stand where a kubelet stood in standalone mode.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/runtime/process"
)

func main() {
	process.Init() // the embedded runtime executes this program again for each container
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:])
	stop()
	switch code := exitCode(0); {
	case errors.Is(err, pflag.ErrHelp):
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "minikubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if isCommand(args) {
		return runCommand(ctx, args, os.Stdout, os.Stderr)
	}
	settings, err := parse(args)
	if err != nil {
		return err
	}
	if settings.Version {
		fmt.Println(version())
		return nil
	}
	display := newDisplay(settings.Show, os.Stdout, os.Stderr)
	log := logr.FromSlogHandler(slog.NewTextHandler(display.logs, &slog.HandlerOptions{Level: slog.Level(-settings.Verbosity)}))
	for _, w := range settings.Warnings {
		log.Info("Warning: " + w)
	}
	saveMemory()
	agent := func(ctx context.Context) error { return serve(ctx, settings, log, display) }
	if settings.ContainerRuntimeEndpoint == "" {
		return withEmbedded(ctx, settings, log, agent)
	}
	return agent(ctx)
}

// saveMemory has garbage collected when it is half of what is in use, and not when it
// is as much: an agent makes little of it, and what it holds is what the node lacks.
// Who sets GOGC or GOMEMLIMIT knows better.
func saveMemory() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(50)
	}
}
