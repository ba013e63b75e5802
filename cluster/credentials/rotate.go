package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// rotate requests client certificates until ctx ends, or until there is one if they are not
// rotated.
func (c *Client) rotate(ctx context.Context) {
	if len(c.valid().Certificate) == 0 && c.bootstrap == nil {
		c.opts.Logger.Error(nil, "The client certificate has expired or is missing, and there is no bootstrap "+
			"kubeconfig: the API server will refuse this node", "kubeconfig", c.opts.Kubeconfig,
			"certificates", c.opts.CertDir)
	}
	template := &x509.CertificateRequest{Subject: subject(c.nodeName)}
	(&requester{
		store:    c.store,
		signer:   certificatesv1.KubeAPIServerClientKubeletSignerName,
		usage:    certificatesv1.UsageClientAuth,
		current:  c.current.Load,
		template: func() *x509.CertificateRequest { return template },
		client:   c.clientset,
		expires:  c.expires,
		use:      c.use,
		once:     !c.opts.Rotate,
		metrics:  c.opts.Metrics,
		log:      c.opts.Logger,
	}).run(ctx)
}

// use has new connections authenticated by the certificate, and closes the old ones. After a
// bootstrap it writes the kubeconfig.
func (c *Client) use(cert *tls.Certificate) {
	reportCertificate(c.opts.Metrics, c.current.Swap(cert), cert)
	c.dialer.CloseAll()
	c.announce()
	log := c.opts.Logger
	log.Info("The node has a new client certificate", "expires", cert.Leaf.NotAfter, "file", c.store.CurrentPath())
	if c.bootstrap == nil {
		return
	}
	if config, err := loadKubeconfig(&c.reader, c.opts.Kubeconfig); err == nil && validCertificate(&c.reader, config,
		time.Now()) == nil {
		return // an administrator has written it, or it refers to the store already
	}
	if err := writeKubeconfig(c.opts.Kubeconfig, c.bootstrap, c.store.CurrentPath()); err != nil {
		log.Error(err, "The kubeconfig cannot be written: the next start requests a certificate again",
			"kubeconfig", c.opts.Kubeconfig)
	}
}

// clientset returns the client for certificate signing requests. It has the node's certificate if that
// is valid. Otherwise it has the bootstrap kubeconfig, and clientset waits until the API server answers.
func (c *Client) clientset(ctx context.Context) (kubernetes.Interface, error) {
	if len(c.valid().Certificate) > 0 || c.bootstrap == nil {
		return kubernetes.NewForConfig(c.config)
	}
	if err := awaitServer(ctx, c.opts.Logger, c.bootstrap); err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(c.bootstrap)
}

// expires returns when the certificate of the node expires; the zero time if there is none that
// is valid.
func (c *Client) expires() time.Time {
	if cert := c.valid(); cert.Leaf != nil {
		return cert.Leaf.NotAfter
	}
	return time.Time{}
}

// awaitServer returns nil when the API server can answer requests, and the error of ctx if
// that ends first.
func awaitServer(ctx context.Context, log logr.Logger, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Timeout = 5 * time.Second
	config.QPS = -1
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	said := ""
	for {
		err := client.Get().AbsPath("/healthz").Do(ctx).Error()
		if err == nil || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return nil
		}
		if text := err.Error(); text != said && !errors.Is(err, context.Canceled) {
			said = text
			log.Info("Waiting for the API server, to request a client certificate", "server", config.Host,
				"reason", text)
		}
		if !flow.Sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
}
