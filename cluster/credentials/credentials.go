package credentials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the options of [Load]. Kubeconfig is required.
type Options struct {
	// Kubeconfig is the file with the address of the API server and the credentials.
	Kubeconfig string
	// Logger receives logs. The zero value discards them. No secret is logged.
	Logger logr.Logger
}

// Client are the credentials of an agent. The methods are safe for concurrent use.
type Client struct {
	opts    Options
	config  *rest.Config
	dialer  *connrotation.Dialer
	running atomic.Bool
}

// Load reads the kubeconfig. It makes no connection. Errors name the file that is wrong.
func Load(nodeName string, opts Options) (*Client, error) {
	var errs []error
	if nodeName == "" {
		errs = append(errs, errors.New("credentials: no node name"))
	}
	if opts.Kubeconfig == "" {
		errs = append(errs, errors.New("credentials: no kubeconfig"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	config, err := loadKubeconfig(opts.Kubeconfig)
	if err != nil {
		return nil, err
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	return &Client{opts: opts, config: config, dialer: dialer}, nil
}

// loadKubeconfig reads the current context of a kubeconfig.
func loadKubeconfig(path string) (*rest.Config, error) {
	loader := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	content, err := loader.Load()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*content, content.CurrentContext, &clientcmd.ConfigOverrides{}, loader).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// Config returns a configuration for clients. Their connections use the newest credentials.
// The caller may change the copy, except its transport.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// CloseConnections closes the connections that clients with [Client.Config] have, so that
// their next call makes a new one: for connections that may be half open.
func (c *Client) CloseConnections() { c.dialer.CloseAll() }

// Run keeps the credentials valid until ctx ends, and returns nil then. It returns
// [runtime.ErrAlreadyRunning] if it was called before.
func (c *Client) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	<-ctx.Done()
	return nil
}
