package manifest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

const (
	webManifest = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: "web:1"}]}}`
	badManifest = `{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: []}}`
)

// The pods of manifests that are built into the program.
func ExampleNewStatic() {
	source := manifest.NewStatic("builtin", webManifest)
	sink := podconfigfake.NewSink("edge-7", func(pods []*v1.Pod) { fmt.Println(pods[0].Namespace, pods[0].Name) })
	fmt.Println(source.Name(), source.Run(context.Background(), sink)) // an agent does this
	// Output:
	// default web-edge-7
	// builtin <nil>
}

func TestAStaticSourceRejectsWhatIsNotValid(t *testing.T) {
	var got []*v1.Pod
	sink := podconfigfake.NewSink("edge-7", func(pods []*v1.Pod) { got = pods })
	require.NoError(t, manifest.NewStatic("s", badManifest, webManifest, webManifest+"\n---\nkind: [").Run(t.Context(),
		sink))
	require.Len(t, got, 1)
	assert.Equal(t, "web-edge-7", got[0].Name)
	require.Len(t, sink.Rejected(), 2)
	assert.Equal(t, "bad-edge-7", sink.Rejected()[0].Pod.Name)
	assert.ErrorContains(t, sink.Rejected()[0].Err, "s[0]: ")
	assert.ErrorContains(t, sink.Rejected()[1].Err, "s[2]: ")
}
