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

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// ErrRunning is returned by [Source.Run] while another call of it goes on.
var ErrRunning = errors.New("the http source is already running")

// Options are the settings of a [Source]; the zero value is good.
type Options struct {
	// Logger; the zero value discards.
	Logger logr.Logger
	// Name of the source in the stream of changes. Default: "http".
	Name string
	// CheckFrequency is the time between two requests. Default: 20 s, the
	// httpCheckFrequency of kubelet.
	CheckFrequency time.Duration
	// Timeout is how long a request may take until all of the answer is there,
	// redirects included. Default: 10 s, that of kubelet.
	Timeout time.Duration
	// Header is sent along, to the host of the URL alone.
	Header http.Header
	// CAFile has the certificates, in PEM, of those who may vouch for the server.
	// Default: those of the system.
	CAFile string
	// CertFile and KeyFile have the certificate and the key, in PEM, that the source
	// shows to servers that ask for one. Both or none. They and the CAFile are read
	// again before each request, so that they can be replaced while the source runs.
	CertFile, KeyFile string
	// Transport makes the requests in place of one of the source's own, which keeps
	// one connection open and honours the environment's proxy settings. It excludes
	// the three files.
	Transport http.RoundTripper
	// Lenient accepts unknown and duplicated fields with a warning in the log.
	Lenient bool
	// Allow are the references to API objects that pods may have. Default: none.
	Allow manifest.AllowedRefs
	// Problem, if not nil, is told of each problem once for as long as it lasts, with
	// the URL without its password, and with a nil error when it is gone. It runs in
	// the goroutine of [Source.Run] and must not block.
	Problem func(url string, err error)
}

// Source reads pods from a URL.
type Source struct {
	url     *url.URL
	opts    Options
	client  *client
	running atomic.Bool
	// state outlives a run, so that the last good pods do.
	state *state
}

// New returns a source of the pods at the URL, whose scheme is http or https. It
// does nothing until it is run. An error says what is wrong with the arguments.
func New(rawURL string, opts Options) (*Source, error) {
	var errs []error
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		// The error would repeat a password that stands in the URL.
		errs = append(errs, errors.New("http source: the URL does not parse"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		errs = append(errs, fmt.Errorf("http source: URL %q must begin with http:// or https:// and a host", u.Redacted()))
	}
	if (opts.CertFile == "") != (opts.KeyFile == "") {
		errs = append(errs, errors.New("http source: CertFile and KeyFile go together, only one is given"))
	}
	if opts.Transport != nil && (opts.CAFile != "" || opts.CertFile != "" || opts.KeyFile != "") {
		errs = append(errs, errors.New("http source: CAFile, CertFile and KeyFile have no effect on a Transport; set its own TLS configuration"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
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
	header := http.Header{} // with keys in the form that [http.Header.Del] knows
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

// Run reads the URL and hands over its pods whenever they change, until ctx ends;
// then it returns nil. The only errors are [ErrRunning] and that of a sink without
// a node name.
func (s *Source) Run(ctx context.Context, sink podconfig.Sink) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
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
			s.opts.Logger.Info("Pods are read over http: whoever is on the way decides what runs here", "url", s.url.Redacted())
		}
	}
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
		changed := s.state.take(answer, err)
		if s.state.known && (changed || !delivered) {
			sink.Set(s.state.pods)
			delivered = true
		}
		timer.Reset(s.state.wait())
	}
}
