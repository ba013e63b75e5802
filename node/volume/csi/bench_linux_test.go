package csi_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// minimal is a driver whose volumes are bind mounts of one directory.
type minimal struct {
	csipb.UnimplementedNodeServer
	source string
	// mounts has the paths of mounts: calls are repeated after a restart of the agent.
	mounts sync.Map
}

func (d *minimal) mount(source, target string) error {
	if _, mounted := d.mounts.LoadOrStore(target, nil); mounted {
		return nil
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

func (d *minimal) unmount(target string) error {
	d.mounts.Delete(target)
	return unix.Unmount(target, 0)
}

func (*minimal) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	return &csipb.NodeGetInfoResponse{NodeId: "id"}, nil
}

func (*minimal) NodeGetCapabilities(context.Context,
	*csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	return &csipb.NodeGetCapabilitiesResponse{Capabilities: []*csipb.NodeServiceCapability{{
		Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: stageCapability}}}}}, nil
}

func (d *minimal) NodeStageVolume(_ context.Context,
	r *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	return &csipb.NodeStageVolumeResponse{}, d.mount(d.source, r.GetStagingTargetPath())
}

func (d *minimal) NodePublishVolume(_ context.Context,
	r *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	if err := os.MkdirAll(r.GetTargetPath(), 0o750); err != nil {
		return nil, err
	}
	return &csipb.NodePublishVolumeResponse{}, d.mount(r.GetStagingTargetPath(), r.GetTargetPath())
}

func (d *minimal) NodeUnpublishVolume(_ context.Context,
	r *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	if err := d.unmount(r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csipb.NodeUnpublishVolumeResponse{}, os.Remove(r.GetTargetPath())
}

func (d *minimal) NodeUnstageVolume(_ context.Context,
	r *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, d.unmount(r.GetStagingTargetPath())
}

// claims are attached volumes of a driver, one for each name.
type claims struct {
	volume.ClaimBase
	*cluster
}

func (claims) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID("claim-"+name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	return claim, nil
}

func (c claims) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.UID = name, types.UID("uid-"+name)
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: types.UID("claim-" + name)}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}
	return pv, nil
}

// quiet is an agent that logs nothing.
type quiet struct{ lifecycle.NopNode }

func (quiet) NodeName() string { return nodeName }

// bench is a node with a minimal driver and many pods, each with one volume.
type bench struct {
	*testing.B
	root, socket string
	claims       claims
	pods         []*v1.Pod
}

func newBench(b *testing.B, pods int) *bench {
	if os.Geteuid() != 0 {
		b.Skip("only root can mount")
	}
	dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
	require.NoError(b, err)
	x := &bench{B: b, root: b.TempDir(), socket: filepath.Join(dir, "s"), claims: claims{cluster: newCluster()}}
	x.claims.add(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}}, "d")
	for i := range pods {
		name := fmt.Sprintf("pod-%d", i)
		x.claims.attach(csinode.AttachmentName(name, "d", nodeName), storagev1.VolumeAttachmentStatus{Attached: true})
		pod := testpod.New(name, testpod.Namespace("default"), testpod.UID(types.UID(name)), testpod.Containers("main"))
		pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
		x.pods = append(x.pods, pod)
	}
	server := grpc.NewServer()
	csipb.RegisterNodeServer(server, &minimal{source: b.TempDir()})
	listener, err := net.Listen("unix", x.socket)
	require.NoError(b, err)
	served := make(chan error, 1) // has room for the result
	go func() { served <- server.Serve(listener) }()
	b.Cleanup(func() {
		server.Stop()
		<-served
		require.NoError(b, os.RemoveAll(dir))
	})
	return x
}

// agent starts an agent, and waits until it knows which volumes are in use.
func (x *bench) agent() (m *volume.Reconciler, stop func()) {
	p, err := csi.New(x.claims.cluster, x.root, csi.Options{})
	require.NoError(x, err)
	require.NoError(x, p.Join(quiet{}))
	m, err = volume.New(volume.Options{Persistent: []volume.PersistentPlugin{p},
		Sources: volume.Sources{Claims: x.claims}})
	require.NoError(x, err)
	ctx, cancel := context.WithCancel(x.Context())
	ended := make(chan error, 1) // has room for the result
	go func() { ended <- p.Run(ctx) }()
	require.NoError(x, p.Register(ctx, plugins.Plugin{Type: plugins.TypeCSI, Name: "d", Endpoint: x.socket,
		Versions: []string{"1.0.0"}, Socket: "d"}))
	for known := false; !known; {
		time.Sleep(time.Millisecond)
		_, known = p.VolumesInUse()
	}
	return m, func() {
		cancel()
		require.NoError(x, <-ended)
	}
}

func (x *bench) podDir(pod *v1.Pod) string { return filepath.Join(x.root, "pods", string(pod.UID)) }

func (x *bench) setUp(m *volume.Reconciler) {
	for _, pod := range x.pods {
		_, err := m.SetUp(x.Context(), pod, x.podDir(pod))
		require.NoError(x, err)
	}
}

func (x *bench) remove(m *volume.Reconciler) {
	for _, pod := range x.pods {
		require.NoError(x, m.Remove(x.Context(), runtime.RefOf(pod), x.podDir(pod)))
	}
}

// BenchmarkStart sets up the volumes of 100 pods, each with one of a driver, and an emptyDir for each pod while a client
// only makes the calls of the driver. "more-ms/pod" is what the start of a pod takes longer.
func BenchmarkStart(b *testing.B) {
	x := newBench(b, 100)
	m, stop := x.agent()
	defer stop()
	conn, err := grpc.NewClient("unix://"+x.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	defer func() { require.NoError(b, conn.Close()) }()
	client := csidriver.Bare{NodeClient: csipb.NewNodeClient(conn), Dir: b.TempDir()}

	var own, bare time.Duration
	for b.Loop() {
		began := time.Now()
		x.setUp(m)
		own += time.Since(began)
		x.remove(m)

		empty := make([]*v1.Pod, 0, len(x.pods))
		for _, pod := range x.pods {
			pod = pod.DeepCopy()
			pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
			empty = append(empty, pod)
		}
		began = time.Now()
		for _, pod := range empty {
			_, err := m.SetUp(b.Context(), pod, x.podDir(pod))
			require.NoError(b, err)
			require.NoError(b, client.Publish(b.Context(), pod.Name))
		}
		bare += time.Since(began)
		for _, pod := range empty {
			require.NoError(b, client.Unpublish(b.Context(), pod.Name))
			require.NoError(b, m.Remove(b.Context(), runtime.RefOf(pod), x.podDir(pod)))
		}
	}
	pods := float64(b.N * len(x.pods))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(own.Seconds()*1000/pods, "ms/pod")
	b.ReportMetric(bare.Seconds()*1000/pods, "bare-ms/pod")
	b.ReportMetric((own-bare).Seconds()*1000/pods, "more-ms/pod")
	b.ReportMetric(own.Seconds()/bare.Seconds(), "ratio")
}

// BenchmarkRestart starts an agent on a node with 1,000 pods, each with a volume that is staged and published: "known-s"
// is the time until the agent knows which volumes are in use, "pods-s" until each pod has its own.
func BenchmarkRestart(b *testing.B) {
	x := newBench(b, 1000)
	m, stop := x.agent()
	x.setUp(m)
	stop()
	var known, pods time.Duration
	for b.Loop() {
		began := time.Now()
		m, stop = x.agent()
		known += time.Since(began)
		x.setUp(m)
		pods += time.Since(began)
		stop()
	}
	m, stop = x.agent()
	x.remove(m)
	stop()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(known.Seconds()/float64(b.N), "known-s")
	b.ReportMetric(pods.Seconds()/float64(b.N), "pods-s")
}
