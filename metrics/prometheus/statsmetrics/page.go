package statsmetrics

import (
	"context"
	"net/http"
	"sync"

	"github.com/kubeletkit/kubeletkit/internal/page"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/stats"
)

// Reader reads the usage. A *stats.Collector implements it.
type Reader interface {
	Read(ctx context.Context) (*stats.Reading, error)
	Extra() []runtime.MetricFamily
}

// Resource returns a handler of /metrics/resource.
func Resource(reader Reader) http.Handler {
	return &pages{reader: reader, encode: func(r *stats.Reading, _ []runtime.MetricFamily) []byte { return resource(r) }}
}

// Cadvisor returns a handler of /metrics/cadvisor. CPU, memory, network and pressure are those
// of the reading. The metrics that a runtime has beyond these (KEP-2371) are the last ones that
// were read, with their time: some runtimes take seconds for them.
func Cadvisor(reader Reader) http.Handler {
	return &pages{reader: reader, extra: reader.Extra, encode: cadvisor}
}

// pages is a page that is encoded once for a reading.
type pages struct {
	reader Reader
	extra  func() []runtime.MetricFamily // nil if the page has no further metrics
	encode func(*stats.Reading, []runtime.MetricFamily) []byte
	bodies page.Bodies

	mu   sync.Mutex
	last *stats.Reading
	with []runtime.MetricFamily
	body *page.Body
}

// ServeHTTP answers a request. Until the usage is read, it waits at most as long as the client.
func (p *pages) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r, err := p.reader.Read(req.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	p.of(r).ServeHTTP(w, req)
}

func (p *pages) of(r *stats.Reading) *page.Body {
	var families []runtime.MetricFamily
	if p.extra != nil {
		families = p.extra()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	same := len(families) == len(p.with) && (len(families) == 0 || &families[0] == &p.with[0])
	if p.last != r || !same {
		p.body = p.bodies.New(contentType, p.encode(r, families))
		p.last, p.with = r, families
	}
	return p.body
}
