package tracing_test

import (
	"context"
	"fmt"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/metrics/tracing"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The spans of a pod whose container exits. A program exports them by OTLP; here they are printed when all have ended.
func Example() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	store, err := history.New(history.Options{}) // that of an agent is agent.Parts().History
	if err != nil {
		panic(err)
	}
	tracer, err := tracing.New(store, provider, tracing.Options{NodeName: "edge-7"})
	if err != nil {
		panic(err)
	}

	web := runtime.PodRef{UID: "123", Namespace: "default", Name: "web"} // the parts of an agent record this
	store.Record(runtime.Record{Pod: web, Stage: runtime.StageDecided, Kind: runtime.KindAdmit, Source: "file"})
	store.Record(runtime.Record{Pod: web, Stage: runtime.StageDone, Kind: runtime.KindPullImage, Container: "main",
		Message: "web:1", Duration: time.Second})
	store.Record(runtime.Record{Pod: web, Stage: runtime.StageSeen, Kind: runtime.KindContainerRunning,
		Container: "main"})
	store.Record(runtime.Record{Pod: web, Stage: runtime.StageSeen, Kind: runtime.KindContainerExited,
		Container: "main", ExitCode: 2})
	store.Record(runtime.Record{Pod: web, Stage: runtime.StageDone, Kind: runtime.KindRemovePod})

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- tracer.Run(ctx) }() // agent.Add("tracing", tracer.Run) does this
	for len(exporter.GetSpans()) < 5 {
		time.Sleep(time.Millisecond)
	}
	stop()
	fmt.Println(<-ended)
	for _, span := range exporter.GetSpans() {
		fmt.Print(span.Name)
		for _, a := range span.Attributes {
			fmt.Printf(" %s=%s", a.Key, a.Value.String())
		}
		if span.Status.Description != "" {
			fmt.Printf(" (%s)", span.Status.Description)
		}
		fmt.Println()
	}
	// Output:
	// <nil>
	// pod.admission kubeletkit.source=file
	// pod.prepare
	// image.pull k8s.container.name=main container.image.name=web:1
	// container k8s.container.name=main k8s.container.restart_count=0 process.exit.code=2 (exited with code 2)
	// pod k8s.pod.uid=123 k8s.pod.name=web k8s.namespace.name=default k8s.node.name=edge-7
}
