package csidriver

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestOptions(t *testing.T) {
	_, err := New(Options{FileSystem: "fat", Links: true})
	assert.EqualError(t, err, "csidriver: option Dir is required\noption Socket is required\n"+
		"option FileSystem \"fat\" is not supported: ext4\noption FileSystem needs root on Linux, and no Links")
	d, _ := Start(t, Options{})
	assert.ErrorIs(t, d.Run(t.Context()), ErrAlreadyRunning)
	assert.Equal(t, DefaultName, d.Name())
}

func TestCallsAreRecorded(t *testing.T) {
	var after []string
	opts := Options{Settings: nodeOnly, Links: true,
		Before: func(method string, _ proto.Message) error {
			if method == "Probe" {
				return status.Error(codes.Unavailable, "before")
			}
			return nil
		},
		After: func(method string, _, response proto.Message, err error) {
			after = append(after, method+" "+status.Code(err).String())
			assert.Equal(t, err == nil, response != nil)
		}}
	d, stop := Start(t, opts)
	require.NoError(t, d.AddVolume("v", 1))
	c := connect(t, d)
	require.NoError(t, os.Mkdir(c.staging(), 0o755))
	require.NoError(t, c.stage(mounted(writer)))
	_, err := c.Probe(t.Context(), &csi.ProbeRequest{})
	c.code(codes.Unavailable, err)
	calls := d.Calls()
	require.Len(t, calls, 2)
	assert.Equal(t, 1, Count(calls, "NodeStageVolume"))
	assert.Equal(t, "v", calls[0].VolumeID())
	request := calls[0].Request.(*csi.NodeStageVolumeRequest)
	assert.Equal(t, map[string]string{"key": "secret"}, request.Secrets)
	assert.True(t, calls[1].Done)
	assert.Equal(t, codes.Unavailable, calls[1].Code)
	d.ForgetCalls()
	assert.Empty(t, d.Calls())
	stop()
	assert.Equal(t, []string{"NodeStageVolume OK", "Probe Unavailable"}, after)
}

func TestFaults(t *testing.T) {
	d, _ := Start(t, Options{Settings: nodeOnly, Links: true})
	c := connect(t, d)
	info := func(ctx context.Context) (*csi.NodeGetInfoResponse, error) {
		return c.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	}
	d.Inject(Fault{Method: "NodeGetInfo", Times: 1, Delay: time.Millisecond, Code: codes.DataLoss, Message: "lost"})
	_, err := info(t.Context())
	assert.EqualError(t, err, "rpc error: code = DataLoss desc = lost")
	_, err = info(t.Context())
	assert.NoError(t, err)

	d.Inject(Fault{Method: "NodeGetInfo", Times: 1, Answer: &csi.NodeGetInfoResponse{NodeId: "another"}})
	answer, err := info(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "another", answer.NodeId)

	remove := d.Inject(Fault{Nonsense: true})
	_, err = info(t.Context())
	assert.Equal(t, codes.Internal, status.Code(err))
	remove()
	remove()

	d.Inject(Fault{Method: "NodeGetInfo", Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = info(ctx)
	c.code(codes.DeadlineExceeded, err)
	ended := make(chan error)
	go func() {
		_, err := info(t.Context())
		ended <- err
	}()
	assert.Eventually(t, func() bool { return Count(d.Calls(), "NodeGetInfo") == 6 }, time.Minute, time.Millisecond)
	d.Release()
	assert.NoError(t, <-ended)
}

// A driver that ends after the work and before the answer is started again, and has its volumes and calls.
func TestExit(t *testing.T) {
	opts := Options{Settings: nodeOnly, Links: true, Dir: t.TempDir(), KeepCalls: true}
	d, stop := Start(t, opts)
	require.NoError(t, d.AddVolume("v", 1))
	c := connect(t, d)
	require.NoError(t, os.Mkdir(c.staging(), 0o755))
	d.Inject(Fault{Method: "NodeGetInfo", Hang: true}) // it does not outlive the driver
	hung := make(chan error)
	go func() {
		_, err := c.NodeGetInfo(context.WithoutCancel(t.Context()), &csi.NodeGetInfoRequest{})
		hung <- err
	}()
	require.Eventually(t, func() bool { return Count(d.Calls(), "NodeGetInfo") == 1 }, time.Minute, time.Millisecond)
	d.Inject(Fault{Method: "NodeStageVolume", Exit: true})
	c.code(codes.Unavailable, c.stage(mounted(writer)))
	c.code(codes.Unavailable, <-hung)
	stop()
	_, err := net.Dial("unix", d.Socket())
	assert.Error(t, err)
	assert.NotErrorIs(t, err, os.ErrNotExist, "the socket is left")

	opts.Socket = d.Socket()
	d, _ = Start(t, opts)
	again := connect(t, d)
	again.dir = c.dir
	again.code(codes.FailedPrecondition, again.publish("one", mounted(writer), false))
	require.NoError(t, again.stage(mounted(writer)))
	require.NoError(t, again.publish("one", mounted(writer), false))
	assert.Equal(t, 2, Count(d.Calls(), "NodeStageVolume"))
	assert.Len(t, d.Violations(), 1, "the CO has no answer to the first")
}

func TestRegistration(t *testing.T) {
	registry, err := os.MkdirTemp("", "csi")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(registry) })
	d, stop := Start(t, Options{Name: "csi.example.com", Registry: registry, Versions: []string{"1.0.0", "1.13.0"}})
	socket := filepath.Join(registry, "csi.example.com-reg.sock")
	client := registerapi.NewRegistrationClient(dial(t, socket))
	info, err := client.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	assert.True(t, proto.Equal(&registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: "csi.example.com",
		Endpoint: d.Socket(), SupportedVersions: []string{"1.0.0", "1.13.0"}}, info))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Registered(ended, 1)
	assert.ErrorIs(t, err, context.Canceled)
	for _, ok := range []bool{false, true} {
		_, err = client.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: ok})
		require.NoError(t, err)
	}
	result, err := d.Registered(t.Context(), 2)
	require.NoError(t, err)
	assert.True(t, result.PluginRegistered)
	assert.Equal(t, 2, Count(d.Calls(), "NotifyRegistrationStatus"))
	stop()
	assert.NoFileExists(t, socket)
	assert.NoFileExists(t, d.Socket())
}

func TestSettings(t *testing.T) {
	d, _ := Start(t, Options{})
	c := connect(t, d)
	d.Update(func(s *Settings) {
		s.NodeID, s.Topology, s.MaxVolumes = "n", map[string]string{"zone": "a"}, 7
		s.NodeCapabilities, s.NotReady = s.NodeCapabilities[:1], true
	})
	info, err := c.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	require.NoError(t, err)
	assert.True(t, proto.Equal(&csi.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 7,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"zone": "a"}}}, info))
	has, err := c.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	require.NoError(t, err)
	require.Len(t, has.Capabilities, 1)
	assert.Equal(t, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, has.Capabilities[0].GetRpc().Type)
	ready, err := c.Probe(t.Context(), &csi.ProbeRequest{})
	require.NoError(t, err)
	assert.False(t, ready.Ready.Value)
}

func TestRemote(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, _ := Start(t, Options{Control: filepath.Join(dir, "control"), Links: true})
	r, c := NewRemote(filepath.Join(dir, "control")), connect(t, d)
	require.NoError(t, os.Mkdir(c.staging(), 0o755))
	require.NoError(t, r.AddVolume(t.Context(), "v", 1<<20))
	c.context, err = r.AttachVolume(t.Context(), "v", "node", mounted(writer))
	require.NoError(t, err)
	_, err = r.AttachVolume(t.Context(), "w", "node", mounted(writer))
	assert.ErrorContains(t, err, "there is no volume w")
	remove, err := r.Inject(t.Context(), Fault{Method: "NodeStageVolume", Code: codes.Internal})
	require.NoError(t, err)
	c.code(codes.Internal, c.stage(mounted(writer)))
	require.NoError(t, remove(t.Context()))
	c.code(codes.FailedPrecondition, c.publish("one", mounted(writer), false))
	require.NoError(t, c.stage(mounted(writer)))
	calls, err := r.Calls(t.Context())
	require.NoError(t, err)
	require.Len(t, calls, 3)
	for i, call := range d.Calls() {
		assert.Equal(t, call.Method, calls[i].Method)
		assert.Equal(t, call.Code, calls[i].Code)
		assert.True(t, proto.Equal(call.Request, calls[i].Request))
	}
	violations, err := r.Violations(t.Context())
	require.NoError(t, err)
	assert.Equal(t, d.Violations(), violations)
	health := []*csi.VolumeHealth_VolumeHealthEntry{{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: "Slow"}}
	require.NoError(t, r.Update(t.Context(), func(s *Settings) {
		s.MaxVolumes, s.Health = 3, map[string][]*csi.VolumeHealth_VolumeHealthEntry{"v": health}
	}))
	assert.EqualValues(t, 3, d.Settings().MaxVolumes)
	reported, err := c.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "v"})
	require.NoError(t, err)
	assert.Equal(t, "Slow", reported.VolumeHealth.HealthStatuses[0].Reason)
	require.NoError(t, r.ForgetCalls(t.Context()))
	require.NoError(t, r.Release(t.Context()))
	assert.Empty(t, d.Calls())
}

func TestFaultInJSON(t *testing.T) {
	in := Fault{Method: "NodeGetInfo", Times: 2, Delay: time.Second, Code: codes.Aborted,
		Answer: &csi.NodeGetInfoResponse{NodeId: "n"}}
	data, err := json.Marshal(in)
	require.NoError(t, err)
	var out Fault
	require.NoError(t, json.Unmarshal(data, &out))
	assert.True(t, proto.Equal(in.Answer, out.Answer))
	in.Answer, out.Answer = nil, nil
	assert.Equal(t, in, out)
	require.NoError(t, json.Unmarshal([]byte(`{"Method": "Probe", "Hang": true}`), &out))
	assert.True(t, out.Hang)
}
