package prommetrics

import (
	"bytes"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// Handler returns a handler of a page of metrics in Prometheus' text format. Clients at the same
// time share what was gathered and encoded, and a client that is slow holds nothing but that, of
// which there are 4 at most. As with kubelet, a metric that cannot be gathered does not keep the
// others from the page; it is logged.
// A zero log is that of package slog.
func Handler(gatherer prometheus.Gatherer, log logr.Logger) http.Handler {
	log = logging.OrDefault(log)
	return nodenet.NewSharedPage(string(expfmt.NewFormat(expfmt.TypeTextPlain)), func(buf []byte) ([]byte, error) {
		families, err := gatherer.Gather()
		if err != nil {
			log.Info("Some metrics cannot be gathered", "reason", err.Error())
		}
		out := bytes.NewBuffer(buf)
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
				return nil, err
			}
		}
		return out.Bytes(), nil
	})
}
