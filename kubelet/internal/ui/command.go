package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
)

// Command returns the command ui of a program. It writes the address of the page to out.
func Command(program config.Program, out io.Writer) *cobra.Command {
	var rootDir string
	var port uint16
	var allow allowed
	cmd := &cobra.Command{
		Use: "ui", Short: "show the pods in a browser on this machine", GroupID: client.GroupNode,
		Long: "It serves a page on the loopback interface until it is interrupted, and prints its address. The " +
			"address has a token, without which the " +
			"page shows nothing; it is a new one at each start. The page changes nothing, but for restarts of containers " +
			"with --allow-restart, which are in the log of the agent too, and what is done in a terminal with " +
			"--allow-exec. Each restart and each command is printed with its user.",
		Example: `  minikubelet ui
  minikubelet ui --port 8088   # then, from elsewhere: ssh -L 8088:127.0.0.1:8088 HOST`,
	}
	cmd.Flags().StringVar(&rootDir, "root-dir", "",
		"root directory of the agent (default: that of an agent without the flag)")
	cmd.Flags().Uint16Var(&port, "port", 0, "port on 127.0.0.1; a free one if 0")
	cmd.Flags().BoolVar(&allow.restart, "allow-restart", false,
		"the page can restart containers, as the command restart does")
	cmd.Flags().BoolVar(&allow.exec, "allow-exec", false,
		"the page can run commands in containers, in a terminal, as the command exec does")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &config.UsageError{Err: fmt.Errorf("ui: unexpected argument %q; see %s ui --help", args[0], program)}
		}
		dir, err := program.AgentRootDir(rootDir, "")
		if err != nil {
			return err
		}
		return serve(cmd.Context(), filepath.Join(dir, config.SocketName), port, allow, out)
	}
	return cmd
}

// allowed is what the page may change.
type allowed struct{ restart, exec bool }

// serve serves the page until ctx ends.
func serve(ctx context.Context, socket string, port uint16, allow allowed, out io.Writer) error {
	agent := newAgent(socket)
	switch answer, err := agent.get(ctx, "/healthz", nil); {
	case err == nil:
		_ = answer.Close()
	case errors.Is(err, control.ErrNoAgent):
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("--port %d: %w", port, err)
	}
	token := rand.Text()
	h, can := newHandler(agent, token), "read the logs of all pods"
	if allow.restart {
		h.allowRestart(out)
		can += ", and restart their containers"
	}
	if allow.exec {
		h.allowExec(out)
		can += ", and run commands in their containers"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }, // logs that are followed end with it
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Fprintf(out, "http://%s/#%s\nPress Ctrl-C to end. Whoever has this address can %s.\n",
		l.Addr(), token, can)
	err = server.Serve(l)
	stopped := ctx.Err() != nil
	cancel()
	<-closed
	if stopped {
		return nil
	}
	return err
}
