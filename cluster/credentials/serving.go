package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ServingOptions are the options of [LoadServing]. The certificate comes from CertFile and
// KeyFile, or is requested with Client, or signs itself.
type ServingOptions struct {
	// CertFile and KeyFile are a certificate and its key in PEM. They are read again when they
	// change.
	CertFile, KeyFile string
	// CertDir is the directory of a certificate that is requested or signs itself.
	CertDir string
	// Client requests certificates. Addresses returns the addresses of the node, which they are
	// for; until there is an IP address, none is requested, or with DNSOnly an IP address or a DNS name. It must not
	// block.
	Client    kubernetes.Interface
	Addresses func() []v1.NodeAddress
	DNSOnly   bool
	// Metrics receives measurements of the certificate. If nil, they are discarded.
	Metrics Metrics
	// Logger receives logs. Default: that of package slog.
	Logger logr.Logger
}

// Serving is the certificate of an agent that serves TLS. The methods are safe for concurrent
// use.
type Serving struct {
	opts     ServingOptions
	nodeName string
	store    certificate.FileStore // of requested certificates; nil: none are
	current  atomic.Pointer[tls.Certificate]
	reader   safefile.Reader
	running  atomic.Bool

	files   sync.Mutex
	checked time.Time // when the files were looked at
	version string    // of the files
}

// ErrNoCertificate means that a certificate was requested and is not signed yet. Signing
// requests of serving certificates are approved by an administrator.
var ErrNoCertificate = errors.New("there is no serving certificate yet; its signing request has to be approved")

// LoadServing returns the certificate of a server. One that signs itself is written to CertDir
// if there is none that is valid: kubelet.crt and kubelet.key, as kubelet names them. Errors
// name the file that is wrong.
func LoadServing(nodeName string, opts ServingOptions) (*Serving, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.Metrics == nil {
		opts.Metrics = noMetrics{}
	}
	s := &Serving{opts: opts, nodeName: nodeName}
	switch {
	case nodeName == "":
		return nil, errors.New("serving certificate: no node name")
	case (opts.CertFile == "") != (opts.KeyFile == ""):
		return nil, errors.New("serving certificate: the certificate and its key belong together")
	case opts.CertFile != "":
		return s, s.readFiles(opts.CertFile, opts.KeyFile)
	case opts.CertDir == "":
		return nil, errors.New("serving certificate: no directory")
	case opts.Client == nil:
		return s, s.selfSigned()
	case opts.Addresses == nil:
		return nil, errors.New("serving certificate: no addresses to request one for")
	}
	store, err := certificate.NewFileStoreWithLogger(opts.Logger.V(2), "kubelet-server", opts.CertDir, opts.CertDir, "",
		"")
	if err != nil {
		return nil, fmt.Errorf("serving certificates in %s: %w", opts.CertDir, err)
	}
	s.store = store
	cert, err := store.Current()
	if none := (*certificate.NoCertKeyError)(nil); err != nil && !errors.As(err, &none) {
		return nil, fmt.Errorf("serving certificates in %s: %w", opts.CertDir, err)
	}
	if cert != nil {
		s.use(cert)
	}
	return s, nil
}

// GetCertificate is for [tls.Config]. Its error is [ErrNoCertificate] while there is none.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.opts.CertFile != "" {
		s.reread()
	}
	if cert := s.current.Load(); cert != nil {
		return cert, nil
	}
	return nil, ErrNoCertificate
}

// Run requests certificates until ctx ends, and returns nil then. It returns
// [runtime.ErrAlreadyRunning] if it was called before.
func (s *Serving) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	if s.store == nil {
		<-ctx.Done()
		return nil
	}
	(&requester{
		store:   s.store,
		signer:  certificatesv1.KubeletServingSignerName,
		usage:   certificatesv1.UsageServerAuth,
		current: s.current.Load,
		template: func() *x509.CertificateRequest {
			return servingTemplate(s.nodeName, s.opts.Addresses(), s.opts.DNSOnly)
		},
		client: func(context.Context) (kubernetes.Interface, error) { return s.opts.Client, nil },
		use: func(cert *tls.Certificate) {
			s.use(cert)
			s.opts.Logger.Info("The node has a new serving certificate", "expires", cert.Leaf.NotAfter,
				"file", s.store.CurrentPath())
		},
		metrics: s.opts.Metrics,
		log:     s.opts.Logger,
	}).run(ctx)
	return nil
}

// servingTemplate returns what a serving certificate is requested for: all names and addresses
// of the node, sorted. It is nil while there is no IP address, as in kubelet.
func servingTemplate(nodeName string, addresses []v1.NodeAddress, dnsOnly bool) *x509.CertificateRequest {
	names, ips := map[string]bool{}, map[string]bool{}
	for _, a := range addresses {
		ip := net.ParseIP(a.Address)
		switch a.Type {
		case v1.NodeHostName:
			if ip == nil && a.Address != "" {
				names[a.Address] = true
			}
		case v1.NodeInternalDNS, v1.NodeExternalDNS:
			if a.Address != "" {
				names[a.Address] = true
			}
			ip = nil
		case v1.NodeInternalIP, v1.NodeExternalIP:
		default:
			ip = nil
		}
		if ip != nil {
			ips[ip.String()] = true
		}
	}
	if len(ips) == 0 && (!dnsOnly || len(names) == 0) {
		return nil
	}
	template := &x509.CertificateRequest{Subject: subject(nodeName)}
	for name := range names {
		template.DNSNames = append(template.DNSNames, name)
	}
	slices.Sort(template.DNSNames)
	for ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	slices.SortFunc(template.IPAddresses, func(a, b net.IP) int { return strings.Compare(a.String(), b.String()) })
	return template
}

// selfSigned uses the certificate in the directory, and makes one if there is none that is
// valid.
func (s *Serving) selfSigned() error {
	certFile, keyFile := filepath.Join(s.opts.CertDir, "kubelet.crt"), filepath.Join(s.opts.CertDir, "kubelet.key")
	err := s.readFiles(certFile, keyFile)
	if err == nil && time.Now().Before(s.current.Load().Leaf.NotAfter) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var ips []net.IP
	if s.opts.Addresses != nil {
		if t := servingTemplate(s.nodeName, s.opts.Addresses(), false); t != nil {
			ips = t.IPAddresses
		}
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(s.nodeName, ips, nil)
	if err != nil {
		return fmt.Errorf("serving certificate %s: %w", certFile, err)
	}
	if err := replaceFile(keyFile, key); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	if err := replaceFile(certFile, cert); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	s.opts.Logger.Info("Made a serving certificate that signs itself", "file", certFile)
	return s.readFiles(certFile, keyFile)
}

// readFiles uses the certificate in the files.
func (s *Serving) readFiles(certFile, keyFile string) error {
	cert, err := s.keyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("serving certificate %s with key %s: %w", certFile, keyFile, err)
	}
	s.use(&cert)
	return nil
}

func (s *Serving) keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := s.reader.Read(certFile, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := s.reader.Read(keyFile, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// use has new connections use the certificate.
func (s *Serving) use(cert *tls.Certificate) {
	reportCertificate(s.opts.Metrics, s.current.Swap(cert), cert)
}

// filesPeriod is the time between two looks at the files of a certificate (kubelet: a minute).
const filesPeriod = time.Minute

// reread reads the files anew if they have changed. If they cannot be used, because one of the
// two is not there yet, the certificate stays.
func (s *Serving) reread() {
	s.files.Lock()
	defer s.files.Unlock()
	now := time.Now()
	if now.Sub(s.checked) < filesPeriod {
		return
	}
	s.checked = now
	version := ""
	for _, file := range []string{s.opts.CertFile, s.opts.KeyFile} {
		if info, err := safefile.Do(&s.reader, file, func() (os.FileInfo, error) { return os.Stat(file) }); err == nil {
			version += info.ModTime().String()
		}
	}
	if version == s.version {
		return
	}
	if err := s.readFiles(s.opts.CertFile, s.opts.KeyFile); err != nil {
		s.opts.Logger.Error(err, "The serving certificate cannot be read anew; the old one is used")
		return
	}
	s.version = version
}
