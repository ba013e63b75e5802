package prommetrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/pleg"
)

// scrape returns what the registry tells.
func scrape(t *testing.T, reg prometheus.Gatherer) string {
	t.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(),
		http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, rec.Code)
	return rec.Body.String()
}

// TestNamesAreKubelets compares with testdata/metrics.txt. In it, what is called
// kubelet_* was written by the metrics package of kubelet 1.36.3, given the same values.
func TestNamesAreKubelets(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewPLEG(reg)
	require.NoError(t, err)
	began := time.Unix(1_700_000_000, 600_000_000)
	m.Measure(pleg.Relisted{Took: 20 * time.Millisecond, Began: began.Add(-time.Minute), Due: began})
	m.Measure(pleg.Counts{Pods: 9, Exited: 4, Unknown: 1})
	m.Measure(pleg.Relisted{Took: 40 * time.Millisecond, Began: began, Interval: time.Second})
	m.Measure(pleg.Counts{Pods: 2, Running: 3, Exited: 1})
	m.Measure(pleg.Relisted{Took: 2 * time.Minute, Err: errors.New("hung"), Began: began.Add(time.Second),
		Interval: 3 * time.Second, Due: began.Add(time.Hour)})
	m.Measure(pleg.Connected{})
	m.Measure(pleg.Connected{Err: errors.New("reset")})
	m.Measure(pleg.Connected{})
	m.Measure(pleg.Hinted{})
	m.Measure(pleg.Hinted{Age: 3 * time.Millisecond})
	m.Measure(pleg.Missed{Pods: 2})
	want, err := os.ReadFile("testdata/metrics.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), scrape(t, reg))
}

func TestARegistryTakesAllOrNone(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t,
		reg.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_running_pods",
			Help: "Number of pods that have a running pod sandbox"})))
	before := scrape(t, reg)
	m, err := prommetrics.NewPLEG(reg)
	assert.Nil(t, m)
	assert.ErrorContains(t, err, "kubelet_running_pods")
	assert.Equal(t, before, scrape(t, reg))
}

func TestTwoGeneratorsNeedTwoLabels(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for _, node := range []string{"a", "b"} {
		m, err := prommetrics.NewPLEG(prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, reg))
		require.NoError(t, err)
		m.Measure(pleg.Missed{Pods: 1})
	}
	assert.Contains(t, scrape(t, reg), `kubeletkit_pleg_missed_pods_total{node="b"} 1`)
	_, err := prommetrics.NewPLEG(prometheus.WrapRegistererWith(prometheus.Labels{"node": "a"}, reg))
	assert.ErrorContains(t, err, "each needs a registry, or a label, of its own")
	assert.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
}

func TestPLEGIsSafeForConcurrentUse(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewPLEG(reg)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				m.Measure(pleg.Relisted{Took: time.Second, Interval: time.Second})
				m.Measure(pleg.Counts{Pods: 1})
				m.Measure(pleg.Connected{})
				m.Measure(pleg.Hinted{Age: time.Second})
				m.Measure(pleg.Missed{Pods: 1})
			}
		})
	}
	wg.Go(func() { scrape(t, reg) })
	wg.Wait()
	assert.Contains(t, scrape(t, reg), "kubeletkit_pleg_missed_pods_total 400")
}

// TestLastSeenIsNowUntilARelistIsOverdue: with events, relists are far apart.
func TestLastSeenIsNowUntilARelistIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		m, err := prommetrics.NewPLEG(reg)
		require.NoError(t, err)
		seen := func() float64 {
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() == "kubelet_pleg_last_seen_seconds" {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		assert.Zero(t, seen())
		began := time.Now()
		m.Measure(pleg.Relisted{Began: began, Due: began.Add(5 * time.Minute)})
		assert.EqualValues(t, began.Unix(), seen())
		time.Sleep(4 * time.Minute)
		assert.EqualValues(t, time.Now().Unix(), seen())
		time.Sleep(time.Hour)
		assert.EqualValues(t, began.Add(5*time.Minute).Unix(), seen())
		m.Measure(pleg.Relisted{Began: time.Now(), Err: errors.New("hung"), Due: time.Now().Add(time.Hour)})
		time.Sleep(time.Minute)
		assert.EqualValues(t, began.Add(5*time.Minute).Unix(), seen(), "a relist that failed saw nothing")

		began = time.Now()
		m.Measure(pleg.Relisted{Began: began, Due: began.Add(5 * time.Minute)})
		time.Sleep(time.Minute)
		for range 3 {
			m.Measure(pleg.Relisted{Began: time.Now(), Err: errors.New("gone"), Due: time.Now().Add(time.Second)})
			time.Sleep(time.Second)
		}
		assert.EqualValues(t, began.Add(time.Minute).Unix(), seen(), "until the first that failed")
	})
}

func ExampleNewPLEG() {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewPLEG(reg) // its Measure is for pleg.Options.Measure
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Measure(pleg.Counts{Pods: 3})

	rec := httptest.NewRecorder()
	h := promhttp.HandlerFor(reg, promhttp.HandlerOpts{}) // for server.Options.Metrics
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "kubelet_running_pods") {
			fmt.Print(line)
		}
	}
	// Output: kubelet_running_pods 3
}
