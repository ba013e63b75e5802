package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/agenttest"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/metrics/tracing"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func providerOf(exporter sdktrace.SpanExporter) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
}

// traced are the options of a node whose pods have spans.
func traced(exporter sdktrace.SpanExporter) agenttest.Options {
	return agenttest.Options{BeforeRun: func(t *testing.T, n *agenttest.Node) {
		tracer, err := tracing.New(n.Parts().History, providerOf(exporter), tracing.Options{NodeName: "edge-7"})
		require.NoError(t, err)
		require.NoError(t, n.Add("tracing", tracer.Run))
	}}
}

// lines describes spans, in the order in which they have ended: the name of the parent, the name, when it began after
// the first span of all and how long it took, without parts of a second; then its error, its attributes but those of
// the pod, and its events.
func lines(t *testing.T, spans tracetest.SpanStubs) (out []string) {
	t.Helper()
	names := map[string]string{}
	for _, s := range spans {
		id := s.SpanContext.SpanID().String()
		require.NotContains(t, names, id, "a span ends once")
		names[id] = s.Name
	}
	for _, s := range spans {
		require.False(t, s.EndTime.Before(s.StartTime), s.Name)
		line := fmt.Sprintf("%s > %s %s +%s", names[s.Parent.SpanID().String()], s.Name,
			s.StartTime.Sub(spans[0].StartTime).Truncate(time.Second), s.EndTime.Sub(s.StartTime).Round(time.Second))
		if s.Status.Description != "" {
			line += " (" + s.Status.Description + ")"
		}
		for _, a := range s.Attributes {
			if s.Name != "pod" {
				line += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
			}
		}
		for _, e := range s.Events {
			line += " !" + e.Name
		}
		if s.Parent.IsValid() {
			require.NotEmpty(t, names[s.Parent.SpanID().String()], "the parent of %s", s.Name)
		}
		out = append(out, line)
	}
	return out
}

// TestTheLifeOfAPod follows a pod that crashes twice, is ready after a while, and is removed.
func TestTheLifeOfAPod(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	agenttest.Run(t, traced(exporter), func(t *testing.T, n *agenttest.Node) {
		var ready atomic.Bool
		n.Runtime.Script(fake.Target{Pod: "pod-0"}, fake.Times(2, fake.Exits(time.Minute, 3), fake.Behavior{
			Exec: func(context.Context, []string) (runtime.ExecResult, error) {
				if ready.Load() {
					return runtime.ExecResult{}, nil
				}
				return runtime.ExecResult{ExitCode: 1}, nil
			},
		})...)
		pod := fake.Pods(1, 1)[0]
		pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
			ProbeHandler:        v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
			InitialDelaySeconds: 5, // never at the time of a start or an exit
			PeriodSeconds:       10,
		}
		n.Sleep(time.Second) // the agent has started
		n.Source.Set(pod)
		n.Sleep(5 * time.Minute)
		ready.Store(true)
		n.Sleep(5 * time.Minute)
		n.Source.Set()
		n.Sleep(time.Minute)

		spans := exporter.GetSpans()
		got := lines(t, spans)
		for _, want := range []string{
			"pod > pod.admission 0s +0s kubeletkit.source=test",
			"pod > pod.prepare 0s +0s",
			"pod > image.pull 0s +0s k8s.container.name=c0 container.image.name=image:1",
			"pod > pod.sandbox 0s +0s kubeletkit.sandbox.attempt=0",
			"pod > container.start 0s +0s k8s.container.name=c0 k8s.container.restart_count=0",
			"pod > container 0s +1m0s (exited with code 3) k8s.container.name=c0 k8s.container.restart_count=0 " +
				"process.exit.code=3 k8s.container.status.reason=Error !probe.succeeded",
			"pod > container 1m0s +1m0s (exited with code 3) k8s.container.name=c0 k8s.container.restart_count=1 " +
				"process.exit.code=3 k8s.container.status.reason=Error !probe.succeeded",
			"pod > container.backoff 2m0s +10s k8s.container.name=c0 k8s.container.status.reason=CrashLoopBackOff",
		} {
			assert.Contains(t, got, want)
		}
		last := got[len(got)-1]
		assert.Regexp(t, `^ > pod 0s \+10m.* !Withdraw !SandboxDied$`, last)
		assert.Regexp(t, `(?m)^container > container.unready 2m10s \+2m55s k8s.container.name=c0$`,
			strings.Join(got, "\n"))
		assert.Regexp(t, `(?m)^pod > pod.stop 10m0s \+.* kubeletkit.reason=Requested$`, strings.Join(got, "\n"))
		for _, a := range []string{"k8s.pod.uid=" + string(pod.UID), "k8s.pod.name=pod-0", "k8s.namespace.name=default",
			"k8s.node.name=edge-7"} {
			assert.Contains(t, attributes(spans[len(spans)-1]), a)
		}
		for _, s := range spans {
			assert.Equal(t, spans[0].SpanContext.TraceID(), s.SpanContext.TraceID(), s.Name)
		}
	})
}

func attributes(s tracetest.SpanStub) (out []string) {
	for _, a := range s.Attributes {
		out = append(out, string(a.Key)+"="+a.Value.String())
	}
	return out
}

// TestEndsOfPods covers pods that finish, are refused, cannot start, and run when the agent stops.
func TestEndsOfPods(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	agenttest.Run(t, traced(exporter), func(t *testing.T, n *agenttest.Node) {
		pods := fake.Pods(4, 1)
		pods[0].Spec.RestartPolicy = v1.RestartPolicyNever
		n.Runtime.Script(fake.Target{Pod: "pod-0"}, fake.Exits(time.Minute, 0))
		pods[1].Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.shm_rmid_forced2",
			Value: "1"}}}
		n.Runtime.Inject(fake.Fault{Call: "PullImage", Target: fake.Target{Image: "absent:1"},
			Err: errors.New("no such image")})
		pods[2].Spec.Containers[0].Image = "absent:1"
		n.Source.Set(pods...)
		n.Sleep(3 * time.Minute)
		got := map[string][]string{}
		for _, s := range exporter.GetSpans() {
			if s.Name == "pod" {
				got[attributes(s)[1]] = append(got[attributes(s)[1]], s.Status.Description)
			}
		}
		assert.Equal(t, []string{""}, got["k8s.pod.name=pod-0"], "it has finished")
		require.Len(t, got["k8s.pod.name=pod-1"], 1)
		assert.Contains(t, got["k8s.pod.name=pod-1"][0], "Sysctl")
		assert.Len(t, got, 2)
	})
	all := lines(t, exporter.GetSpans())
	text := strings.Join(all, "\n")
	assert.Contains(t, text, "> image.pull 0s +0s (")
	assert.Contains(t, text, "k8s.container.status.reason=ImagePullBackOff")
	assert.Equal(t, 2, strings.Count(text, "!agent.stopped"), "of pods 2 and 3")
	assert.Equal(t, 4, strings.Count(text, " > pod 0s"))
}

// run runs a tracer of a history.
func run(t *testing.T, exporter sdktrace.SpanExporter, opts tracing.Options) (h *history.Memory, stop func()) {
	t.Helper()
	h, err := history.New(history.Options{})
	require.NoError(t, err)
	h.Record(runtime.Record{Pod: refOf(1000), Stage: runtime.StageDecided, Kind: runtime.KindAdmit}) // before New
	time.Sleep(time.Second)
	tracer, err := tracing.New(h, providerOf(exporter), opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- tracer.Run(ctx) }()
	return h, func() {
		cancel()
		require.NoError(t, <-ended)
		require.ErrorIs(t, tracer.Run(t.Context()), runtime.ErrAlreadyRunning)
	}
}

func refOf(n int) runtime.PodRef {
	return runtime.PodRef{UID: types.UID(fmt.Sprint("uid-", n)), Namespace: "default", Name: fmt.Sprint("p", n)}
}

// TestMaxPods asserts that no more pods have open spans, and that pods that are gone make room.
func TestMaxPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exporter := tracetest.NewInMemoryExporter()
		h, stop := run(t, exporter, tracing.Options{MaxPods: 2})
		for n := range 3 {
			h.Record(runtime.Record{Pod: refOf(n), Stage: runtime.StageDecided, Kind: runtime.KindAdmit})
			synctest.Wait()
		}
		h.Record(runtime.Record{Pod: refOf(0), Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
		synctest.Wait()
		h.Record(runtime.Record{Pod: refOf(3), Stage: runtime.StageDecided, Kind: runtime.KindAdmit})
		// it has ended
		h.Record(runtime.Record{Pod: refOf(0), Stage: runtime.StageDone, Kind: runtime.KindRemoveCgroup})
		synctest.Wait()
		stop()
		var names []string
		for _, s := range exporter.GetSpans() {
			if s.Name == "pod" {
				names = append(names, attributes(s)[1])
			}
		}
		assert.ElementsMatch(t, []string{"k8s.pod.name=p0", "k8s.pod.name=p1", "k8s.pod.name=p3"}, names)
	})
}

// blocked is an exporter that blocks until it is closed.
type blocked chan struct{}

func (b blocked) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { <-b; return nil }
func (b blocked) Shutdown(context.Context) error                             { return nil }

// TestABlockedExporterDelaysNothing records the lives of many pods while the exporter blocks.
func TestABlockedExporterDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exporter := make(blocked)
		h, stop := run(t, exporter, tracing.Options{})
		began := time.Now()
		for n := range 2000 {
			for _, kind := range []runtime.RecordKind{runtime.KindAdmit, runtime.KindWithdraw} {
				h.Record(runtime.Record{Pod: refOf(n), Stage: runtime.StageDecided, Kind: kind})
			}
			h.Record(runtime.Record{Pod: refOf(n), Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
		}
		synctest.Wait()
		assert.Zero(t, time.Since(began))
		close(exporter)
		synctest.Wait()
		stop()
	})
}

// TestAnyOrder gives the tracer records as an agent never writes them: no span is left open, and none ends twice.
func TestAnyOrder(t *testing.T) {
	kinds := []runtime.RecordKind{
		runtime.KindAdmit, runtime.KindRefuse, runtime.KindSandboxReady, runtime.KindSandboxDied,
		runtime.KindContainerRunning, runtime.KindContainerExited,
		runtime.KindContainerUnknown, runtime.KindOOMKill, runtime.KindAgentStarted, runtime.KindUpdate,
		runtime.KindReject, runtime.KindWithdraw,
		runtime.KindRecreate, runtime.KindProbe, runtime.KindFail, runtime.KindWait, runtime.KindBackOff,
		runtime.KindCreateSandbox, runtime.KindPullImage,
		runtime.KindStartContainer, runtime.KindStopContainer, runtime.KindResizeContainer, runtime.KindPostStart,
		runtime.KindPreStop, runtime.KindSync,
		runtime.KindStopPod, runtime.KindRemovePod, runtime.KindEvict, runtime.KindRotateLog, runtime.KindRemoveCgroup,
		"Other",
	}
	for seed := range uint64(50) {
		next := rand.New(rand.NewPCG(seed, 0)).IntN
		synctest.Test(t, func(t *testing.T) {
			exporter := tracetest.NewInMemoryExporter()
			h, stop := run(t, exporter, tracing.Options{MaxPods: 2})
			for range 300 {
				r := runtime.Record{Pod: refOf(next(3)), Kind: kinds[next(len(kinds))],
					Stage: []runtime.RecordStage{runtime.StageSeen, runtime.StageDecided, runtime.StageDone}[next(3)]}
				r.Container = []string{"", "a", "b"}[next(3)]
				r.Reason = []string{"", "Readiness", "NotDesired", runtime.ReasonGone}[next(4)]
				r.Error = []string{"", "failed"}[next(2)]
				r.Duration = time.Duration(next(3)) * time.Hour
				if next(2) == 0 {
					r.At = time.Now().Add(time.Duration(next(5)-2) * time.Minute)
				}
				h.Record(r)
				time.Sleep(time.Duration(next(3)) * time.Minute)
				synctest.Wait()
			}
			stop()
			ended := map[string]bool{}
			spans := exporter.GetSpans()
			lines(t, spans)
			for _, s := range spans {
				ended[s.SpanContext.SpanID().String()] = true
			}
			for _, s := range spans {
				assert.True(t, !s.Parent.IsValid() || ended[s.Parent.SpanID().String()], s.Name)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := tracing.New(nil, nil, tracing.Options{MaxPods: -1})
	for _, part := range []string{"history.Store", "TracerProvider", "MaxPods -1"} {
		require.ErrorContains(t, err, part)
	}
	_, err = tracing.New(history.None{}, noop.NewTracerProvider(), tracing.Options{})
	require.NoError(t, err)
}

// TestImports asserts that the package links the API of OpenTelemetry, and neither its SDK nor gRPC nor an agent.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		for _, refused := range []string{"go.opentelemetry.io/otel/sdk", "google.golang.org/grpc", "k8s.io/client-go"} {
			assert.False(t, strings.HasPrefix(dep, refused), dep)
		}
		assert.NotEqual(t, "github.com/kubeletkit/kubeletkit", dep)
	}
}
