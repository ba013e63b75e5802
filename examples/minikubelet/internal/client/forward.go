package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	clientspdy "k8s.io/client-go/transport/spdy"
)

// portForwardCommand is the command port-forward.
func portForwardCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "port-forward POD [LOCAL:]REMOTE...", Short: "forward ports of this machine to a pod", GroupID: groupContainers,
		Long: "REMOTE is the number or the name of a port of the pod. LOCAL is the same if it is not given; if it is empty, as in :80, it is chosen.",
		Example: `  minikubelet port-forward web 8080:80
  minikubelet port-forward web http`,
	}, (*call).portForward, (*call).namespaceFlag, (*call).forwardFlags)
}

func (c *call) forwardFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.addresses, "address", []string{"localhost"}, "addresses to listen on")
}

// portForward listens on ports of this machine and forwards connections to ports of a pod.
func (c *call) portForward(ctx context.Context) error {
	if len(c.args) < 2 {
		return c.misused("want the name of one pod and its ports")
	}
	pod, err := c.podWithLogs(ctx, c.args[0], false)
	if err != nil {
		return err
	}
	var ports []string
	for _, port := range c.args[1:] {
		numbered, err := numberedPort(pod, port)
		if err != nil {
			return err
		}
		ports = append(ports, numbered)
	}
	rt, upgrader, err := c.client.upgrader()
	if err != nil {
		return err
	}
	path := "/portForward/" + url.PathEscape(pod.Namespace) + "/" + url.PathEscape(pod.Name) + "/" + url.PathEscape(string(pod.UID))
	dialer := clientspdy.NewDialerForStreaming(upgrader, &http.Client{Transport: rt}, http.MethodPost, &url.URL{Scheme: "http", Host: "agent", Path: path})
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, c.addresses, ports, make(chan struct{}), c.Out, c.Err)
	if err != nil {
		return c.misused(err.Error())
	}
	if err := f.ForwardPorts(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// numberedPort returns LOCAL:REMOTE with a number for the remote port, which may be the name of
// a port of the pod.
func numberedPort(pod *v1.Pod, port string) (string, error) {
	local, remote, pair := strings.Cut(port, ":")
	if !pair {
		remote = local
	}
	if _, err := strconv.ParseUint(remote, 10, 16); err == nil {
		return port, nil
	}
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name != remote || remote == "" {
				continue
			}
			number := strconv.Itoa(int(p.ContainerPort))
			if !pair {
				local = number
			}
			return local + ":" + number, nil
		}
	}
	return "", fmt.Errorf("pod %s/%s has no port %q: want a number or the name of a port, or LOCAL:REMOTE", pod.Namespace, pod.Name, remote)
}
