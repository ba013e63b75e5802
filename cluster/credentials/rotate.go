package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
)

// subject is the subject of a node's certificates, which the authorizer of nodes requires.
func subject(nodeName string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}
}

// rotate requests client certificates until ctx ends, or until there is one if they are not
// rotated.
func (c *Client) rotate(ctx context.Context) error {
	if !c.opts.Rotate && len(c.valid().Certificate) > 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, c.opts.Logger))
	defer cancel()
	first := make(chan struct{}, 1) // the store has a certificate
	store := &notifyingStore{FileStore: c.store, updated: func(cert *tls.Certificate) {
		c.use(cert)
		select {
		case first <- struct{}{}:
		default:
		}
	}}
	if len(c.valid().Certificate) == 0 {
		if c.bootstrap == nil {
			c.opts.Logger.Error(nil, "The client certificate has expired or is missing, and there is no bootstrap kubeconfig: the API server will refuse this node", "kubeconfig", c.opts.Kubeconfig, "certificates", c.opts.CertDir)
		} else if !awaitServer(ctx, c.opts.Logger, c.bootstrap) {
			return nil
		}
	}
	template := &x509.CertificateRequest{Subject: subject(c.nodeName)}
	manager, err := certificate.NewManager(&certificate.Config{
		Name:                    "client certificate",
		Ctx:                     &ctx,
		ClientsetFn:             c.clientset,
		Template:                template,
		SignerName:              certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:               certificate.DefaultKubeletClientGetUsages,
		BootstrapCertificatePEM: c.inline.cert,
		BootstrapKeyPEM:         c.inline.key,
		CertificateStore:        store,
	})
	if err != nil {
		return fmt.Errorf("client certificates in %s: %w", c.opts.CertDir, err)
	}
	manager.Start()
	defer store.close() // the manager does not wait for its goroutines
	defer manager.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-first:
	}
	if c.opts.Rotate {
		<-ctx.Done()
	}
	return nil
}

// use has new connections authenticated by the certificate, and closes the old ones. After a
// bootstrap it writes the kubeconfig.
func (c *Client) use(cert *tls.Certificate) {
	c.current.Store(cert)
	c.dialer.CloseAll()
	log := c.opts.Logger
	log.Info("The node has a new client certificate", "expires", cert.Leaf.NotAfter, "file", c.store.CurrentPath())
	if c.bootstrap == nil {
		return
	}
	if config, err := loadKubeconfig(c.opts.Kubeconfig); err == nil && validCertificate(config, time.Now()) == nil {
		return // it is that of an administrator, or refers to the store already
	}
	if err := writeKubeconfig(c.opts.Kubeconfig, c.bootstrap, c.store.CurrentPath()); err != nil {
		log.Error(err, "The kubeconfig cannot be written: the next start requests a certificate again", "kubeconfig", c.opts.Kubeconfig)
	}
}

// clientset returns the client for certificate signing requests: that of the node if its
// certificate is valid, else that of the bootstrap kubeconfig.
func (c *Client) clientset(current *tls.Certificate) (kubernetes.Interface, error) {
	if current == nil && c.bootstrap != nil {
		return kubernetes.NewForConfig(c.bootstrap)
	}
	return kubernetes.NewForConfig(c.config)
}

// notifyingStore calls updated with each new certificate. Nothing is written after close.
type notifyingStore struct {
	certificate.FileStore
	updated func(*tls.Certificate)

	mu     sync.Mutex
	closed bool
}

func (s *notifyingStore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Update implements [certificate.Store].
func (s *notifyingStore) Update(cert, key []byte) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, context.Canceled
	}
	stored, err := s.FileStore.Update(cert, key)
	if err == nil {
		s.updated(stored)
	}
	return stored, err
}

// awaitServer returns when the API server can answer requests, and false if ctx ends first.
// The certificate manager would look again after half a minute only.
func awaitServer(ctx context.Context, log logr.Logger, config *rest.Config) bool {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Timeout = 5 * time.Second
	config.QPS = -1
	said := ""
	for {
		client, err := rest.UnversionedRESTClientFor(config)
		if err == nil {
			err = client.Get().AbsPath("/healthz").Do(ctx).Error()
		}
		if err == nil || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return true
		}
		if text := err.Error(); text != said && !errors.Is(err, context.Canceled) {
			said = text
			log.Info("Waiting for the API server, to request a client certificate", "server", config.Host, "reason", text)
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}
