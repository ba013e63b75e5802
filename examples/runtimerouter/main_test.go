package main

import (
	"bytes"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite that every runtime should pass.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	program := func(c fake.Container) fake.Behavior {
		switch c.Command[0] {
		case "exit":
			after, _ := time.ParseDuration(c.Command[1])
			code, _ := strconv.Atoi(c.Command[2])
			return fake.Exits(after, int32(code))
		case "stubborn":
			return fake.Behavior{IgnoresStop: true}
		default:
			return fake.Behavior{}
		}
	}
	runtimetest.Suite(t, runtimetest.Factory{VirtualTime: true, New: func(t *testing.T) *runtimetest.Subject {
		one := fake.New(fake.Options{Dir: dir, Name: "one", IDPrefix: "a-", Behavior: program})
		other := fake.New(fake.Options{Dir: dir, Name: "other", IDPrefix: "b-", Behavior: program})
		t.Cleanup(func() { require.NoError(t, errors.Join(one.Close(), other.Close())) })
		return &runtimetest.Subject{
			Runtime: &Router{Default: one, ByClass: map[string]runtime.Runtime{"vm": other}},
			Host:    one.Host(), Dir: dir, Image: "image:1",
			Sleep: []string{"sleep"}, Stubborn: []string{"stubborn"},
			Exit: func(after time.Duration, code int32) []string {
				return []string{"exit", after.String(), strconv.Itoa(int(code))}
			},
		}
	}})
}

func TestPodsGoToTheRuntimeOfTheirClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, nil))
		assert.Equal(t, `default/untrusted: Running
default/web: Running
containers: default/web/main#0 running
machines: default/untrusted/main#0 running
`, out.String())
	})
}

func TestUnknownClass(t *testing.T) {
	rt := fake.New(fake.Options{Dir: t.TempDir()})
	r := &Router{Default: rt}
	_, err := r.SyncPod(t.Context(), runtime.PodSync{Pod: makePod("web", new("vm")), Host: rt.Host()})
	require.ErrorContains(t, err, `no runtime for runtime class "vm"`)
	require.Error(t, run(t.Context(), nil, []string{"-class", "vm=tcp://nowhere"}))
}
