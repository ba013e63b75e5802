package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Source]. The zero value is valid.
type Options struct {
	// Logger. Default: that of package slog.
	Logger logr.Logger
	// Name of the source. Default: "http".
	Name string
	// CheckFrequency is the time between two requests. Default: 20 s, kubelet's
	// httpCheckFrequency.
	CheckFrequency time.Duration
	// Timeout is the time limit of a request, until the answer is complete, redirects
	// included. Default: 10 s, as kubelet.
	Timeout time.Duration
	// Header is added to requests to the host of the URL.
	Header http.Header
	// CAFile is a file of CA certificates in PEM that the server's certificate is checked
	// with. Default: the certificates of the system.
	CAFile string
	// CertFile and KeyFile are files with the client certificate and its key in PEM. Both
	// are given or none. All three files are read again before each request, so that
	// they can be replaced while the source runs.
	CertFile, KeyFile string
	// Transport makes the requests. Default: a transport that keeps one connection open
	// and uses the proxy settings of the environment. A Transport excludes the three
	// files.
	Transport http.RoundTripper
	// AsKubelet reads what kubelet reads, for an agent in the place of a kubelet: a pod or a PodList, of which unknown
	// and duplicated fields are ignored, and only the first document of the answer, see [manifest.Options]. What is
	// ignored is a problem that wraps a [manifest.Warning], and is passed to the sink's Warn.
	AsKubelet bool
	// Allow are the references to API objects that pods may have. Default: none.
	Allow manifest.AllowedRefs
	// KubeletVersion is the version of the kubelet whose UIDs pods get, see [manifest.Options].
	KubeletVersion string
	// Problem receives each problem once while it lasts, with the URL without its
	// password. When the problem is gone, it receives a nil error. It is called by the
	// goroutine of [Source.Run] and must not block. Answers that cannot be used are also
	// passed to the sink's Reject, so that the Mux logs them.
	Problem func(url string, err error)
}

// Source reads pods from a URL. It implements [podconfig.Source].
type Source struct {
	url     *url.URL
	opts    Options
	client  *client
	running atomic.Bool
	// state outlives a run, so that the last pods do. It is nil until the first.
	state *state
}

// New returns a source of the pods at the URL, whose scheme is http or https. It does
// no I/O. The error joins all problems with the arguments.
func New(rawURL string, opts Options) (*Source, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		// The error of url.Parse repeats the password in the URL.
		errs = append(errs, errors.New("http source: the URL does not parse"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		errs = append(errs, fmt.Errorf("http source: URL %q must begin with http:// or https:// and a host",
			u.Redacted()))
	}
	if (opts.CertFile == "") != (opts.KeyFile == "") {
		errs = append(errs, errors.New("http source: CertFile and KeyFile go together, only one is given"))
	}
	if opts.Transport != nil && (opts.CAFile != "" || opts.CertFile != "" || opts.KeyFile != "") {
		errs = append(errs, errors.New("http source: CAFile, CertFile and KeyFile have no effect on a Transport; "+
			"set its own TLS configuration"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opts.Name == "" {
		opts.Name = "http"
	}
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = 20 * time.Second
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 10 * time.Second
	}
	header := http.Header{} // with canonical keys, for [http.Header.Del]
	for name, values := range opts.Header {
		for _, value := range values {
			header.Add(name, value)
		}
	}
	opts.Header = header
	return &Source{url: u, opts: opts, client: newClient(opts)}, nil
}

// Name returns the name of the source.
func (s *Source) Name() string { return s.opts.Name }

// Run reads the URL and delivers its pods whenever they change, until ctx ends. Then it
// returns nil. It returns an error that wraps [runtime.ErrAlreadyRunning] while another
// call runs, and an error if the sink has no node name.
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("http source %s: %w", s.url.Redacted(), runtime.ErrAlreadyRunning)
	}
	defer s.running.Store(false)
	defer s.client.close()
	if s.state == nil {
		node := sink.NodeName()
		if node == "" {
			return fmt.Errorf("http source %s: no node name given; set podconfig.Options.NodeName", s.url.Redacted())
		}
		s.state = &state{url: s.url, node: node, opts: s.opts}
		if s.url.Scheme == "http" {
			s.opts.Logger.Info("Pods are read over plain http; anyone on the network path can change what runs here",
				"url", s.url.Redacted())
		}
	}
	s.state.sink = sink
	delivered := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		answer, err := s.fetch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		changed := s.state.take(ctx, answer, err)
		if ctx.Err() != nil {
			s.state.last = nil // so that the next run parses it
			return nil
		}
		if s.state.known && (changed || !delivered) {
			sink.Set(s.state.pods)
			delivered = true
		}
		timer.Reset(s.state.wait())
	}
}
