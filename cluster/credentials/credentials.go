package credentials

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/connrotation"

	"github.com/kubeletkit/kubeletkit/cluster/internal/redirects"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the options of [Load]. Kubeconfig is required.
type Options struct {
	// Kubeconfig is the file with the address of the API server and the credentials. With a
	// BootstrapKubeconfig it may be missing, and is written.
	Kubeconfig string
	// BootstrapKubeconfig has the credentials to request a client certificate with. If empty,
	// none is requested while there is no valid one.
	BootstrapKubeconfig string
	// CertDir is the directory of the certificates that are requested. It is required with
	// BootstrapKubeconfig or Rotate.
	CertDir string
	// Rotate requests a new client certificate before the current one expires.
	Rotate bool
	// Metrics receives measurements of the client certificate, if it is requested. If nil, they are
	// discarded.
	Metrics Metrics
	// Logger receives logs. Default: that of package slog.
	Logger logr.Logger
}

// Client are the credentials of an agent. The methods are safe for concurrent use.
type Client struct {
	opts     Options
	nodeName string
	config   *rest.Config // of Config
	dialer   *connrotation.Dialer
	running  atomic.Bool
	reader   safefile.Reader // of files that a user names

	// The following are for certificates that are requested; store is nil if none are.
	store     certificate.FileStore
	bootstrap *rest.Config // requests the first certificate; nil: there is nothing to do it with
	current   atomic.Pointer[tls.Certificate]
	available chan struct{} // closed when there are credentials, or none can be requested
	announce  func()        // closes it, once
}

// Load reads the kubeconfig, the bootstrap kubeconfig if it is needed, and the certificates.
// It makes no connection and writes nothing. Errors name the file that is wrong.
func Load(nodeName string, opts Options) (*Client, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if nodeName == "" {
		errs = append(errs, errors.New("credentials: no node name"))
	}
	if opts.Kubeconfig == "" {
		errs = append(errs, errors.New("credentials: no kubeconfig"))
	}
	if opts.CertDir == "" && (opts.BootstrapKubeconfig != "" || opts.Rotate) {
		errs = append(errs, errors.New("credentials: no directory for the certificates to request"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if opts.Metrics == nil {
		opts.Metrics = noMetrics{}
	}
	c := &Client{opts: opts, nodeName: nodeName,
		dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second,
			KeepAlive: 30 * time.Second}).DialContext)}
	c.available = make(chan struct{})
	c.announce = sync.OnceFunc(func() { close(c.available) })
	if err := c.load(); err != nil {
		return nil, err
	}
	for _, config := range []*rest.Config{c.config, c.bootstrap} {
		if config != nil {
			config.Wrap(redirects.Refuse)
		}
	}
	if c.bootstrap == nil || len(c.valid().Certificate) > 0 {
		c.announce()
	}
	return c, nil
}

// load decides which credentials to use, as kubelet does.
func (c *Client) load() error {
	config, err := loadKubeconfig(&c.reader, c.opts.Kubeconfig)
	if c.opts.BootstrapKubeconfig == "" {
		if err != nil {
			return err
		}
		if c.opts.Rotate && hasCertificate(config) {
			return c.manage(config, nil)
		}
		config.Dial = c.dialer.DialContext
		c.config = config
		return nil
	}
	if err == nil {
		err = validCertificate(&c.reader, config, time.Now())
	}
	bootstrap, bootstrapErr := loadKubeconfig(&c.reader, c.opts.BootstrapKubeconfig)
	switch {
	case err == nil && !c.opts.Rotate:
		config.Dial = c.dialer.DialContext
		c.config = config
		return nil
	case err == nil && bootstrapErr != nil: // it may have been removed when the node had joined
		return c.manage(config, nil)
	case err == nil:
		return c.manage(config, bootstrap)
	case bootstrapErr != nil:
		return errors.Join(err, fmt.Errorf("bootstrap %w", bootstrapErr))
	}
	c.opts.Logger.Info("There is no valid client certificate; one will be requested", "kubeconfig", c.opts.Kubeconfig,
		"reason", err.Error())
	return c.manage(rest.AnonymousClientConfig(bootstrap), bootstrap)
}

// manage makes the configuration of a client whose certificate is requested.
func (c *Client) manage(config, bootstrap *rest.Config) (err error) {
	c.bootstrap = bootstrap
	certFile, keyFile := config.CertFile, config.KeyFile
	if len(config.CertData) > 0 {
		certFile, keyFile = "", ""
	}
	files, err := certificate.NewFileStoreWithLogger(c.opts.Logger.V(2), "kubelet-client", c.opts.CertDir,
		c.opts.CertDir, certFile, keyFile)
	if err != nil {
		return fmt.Errorf("client certificates in %s: %w", c.opts.CertDir, err)
	}
	c.store = files
	cert, err := files.Current()
	var none *certificate.NoCertKeyError
	switch {
	case err == nil:
	case !errors.As(err, &none):
		return fmt.Errorf("client certificates in %s: %w", c.opts.CertDir, err)
	case len(config.CertData) > 0:
		inline, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			return fmt.Errorf("client certificate in the kubeconfig %s: %w", c.opts.Kubeconfig, err)
		}
		cert = &inline
	}
	if cert != nil {
		c.current.Store(cert)
		reportCertificate(c.opts.Metrics, nil, cert)
	}
	anonymous := rest.AnonymousClientConfig(config)
	tlsConfig, err := rest.TLSConfigFor(anonymous)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.opts.Kubeconfig, err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return c.valid(), nil
	}
	proxy := anonymous.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	anonymous.Transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: 25,
		DialContext: c.dialer.DialContext,
	})
	anonymous.TLSClientConfig = rest.TLSClientConfig{} // the transport has it
	c.config = anonymous
	return nil
}

// valid returns the certificate for authentication. If there is no valid one, it returns an empty
// certificate: then the server answers that the call is not authorized, which is clearer than a
// handshake that fails.
func (c *Client) valid() *tls.Certificate {
	if cert := c.current.Load(); cert != nil && (cert.Leaf == nil || time.Now().Before(cert.Leaf.NotAfter)) {
		return cert
	}
	return &tls.Certificate{}
}

// Available returns nil when calls can be authenticated: at once, or when the first certificate
// is signed. It returns the error of ctx if that ends first. Calls before it fail.
func (c *Client) Available(ctx context.Context) error {
	select {
	case <-c.available:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Config returns a configuration for clients. Their connections use the newest credentials.
// The caller may change the copy, except its transport.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// CloseConnections closes the connections that clients with [Client.Config] have, so that
// their next call makes a new one: for connections that may be half open.
func (c *Client) CloseConnections() { c.dialer.CloseAll() }

// Run requests certificates until ctx ends, and returns nil then. It returns
// [runtime.ErrAlreadyRunning] if it was called before.
func (c *Client) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	if c.store != nil {
		c.rotate(ctx)
	}
	<-ctx.Done()
	return nil
}
