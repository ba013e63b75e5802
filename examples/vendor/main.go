// Vendor is the kubelet of an imaginary vendor of edge devices: all that a kubelet has, and what the vendor adds.
//
//   - an admission rule: pods need a label that names their team
//   - a probe type: a Modbus device is ready if it answers on its TCP port
//   - a volume type: a directory that is unpacked from a tar file on the node
//   - a runtime that fails privileged pods for good
//   - a metric beside those of kubelet
//
// Its flags, configuration, ports and commands are those of a kubelet. Without a container runtime, containers are
// processes of this machine:
//
//	go run ./examples/vendor --pod-manifest-path ./manifests
package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func main() { kubelet.Main(options()) }

// options returns what the vendor adds to a kubelet.
func options() kubelet.Options {
	failures := prometheus.NewCounter(prometheus.CounterOpts{Name: "vendor_modbus_failures_total",
		Help: "Probes of Modbus devices that have failed."})
	return kubelet.Options{
		Name:            "vendor",
		Join:            []lifecycle.Component{requireLabel("team")},
		Probes:          []prober.Handler{modbus{failures}},
		Volumes:         []volume.Plugin{tarball{}},
		WrapRuntime:     func(rt runtime.Runtime) runtime.Runtime { return unprivileged{rt} },
		RegisterMetrics: func(reg prometheus.Registerer) error { return reg.Register(failures) },
	}
}

// requireLabel refuses pods without the label.
func requireLabel(key string) lifecycle.Admitter {
	return lifecycle.AdmitterFunc("label", func(req lifecycle.AdmitRequest) error {
		if req.Pod.Labels[key] == "" {
			return lifecycle.Refuse("MissingLabel", "pods on this node need the label "+key)
		}
		return nil
	})
}

// unprivileged is a runtime that fails privileged pods for good.
type unprivileged struct{ runtime.Runtime }

// Unwrap lets the agent find the event stream of the runtime.
func (u unprivileged) Unwrap() any { return u.Runtime }

func (u unprivileged) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	for _, c := range podspec.Containers(&req.Pod.Spec) {
		if sc := c.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
			return runtime.SyncResult{}, &runtime.TerminalError{Reason: "Privileged", Message: "container " + c.Name +
				" is privileged, which this node does not run"}
		}
	}
	return u.Runtime.SyncPod(ctx, req)
}

// modbus probes containers whose pod has the annotation "vendor.example/modbus.<container>"
// with the TCP port of the device.
type modbus struct{ failures prometheus.Counter }

const modbusAnnotation = "vendor.example/modbus."

func (modbus) Name() string { return "modbus" }

func (modbus) Probe(pod *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	if kind != runtime.ReadinessProbe || pod.Annotations[modbusAnnotation+c.Name] == "" {
		return nil
	}
	return &v1.Probe{PeriodSeconds: 5}
}

// Check reads the first register, as each device has one.
func (m modbus) Check(ctx context.Context, t prober.Target) (prober.Outcome, string, error) {
	port, err := strconv.Atoi(t.Pod.Annotations[modbusAnnotation+t.Container.Name])
	if err != nil {
		return prober.Unknown, "", err
	}
	address, err := t.HostPort("", intstr.FromInt(port))
	if err != nil {
		return prober.Unknown, "", err
	}
	failure := func(message string) (prober.Outcome, string, error) {
		m.failures.Inc()
		return prober.Failure, message, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return failure(err.Error())
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	request := []byte{0, 1, 0, 0, 0, 6, 1, 3, 0, 0, 0, 1} // read holding register 0 of unit 1
	if _, err := conn.Write(request); err != nil {
		return failure(err.Error())
	}
	if _, err := io.ReadFull(conn, make([]byte, 9)); err != nil {
		return failure("the device does not answer: " + err.Error())
	}
	return prober.Success, "", nil
}

// tarball is a volume that is unpacked from a tar file: a flexVolume of the driver
// vendor.example/tarball with the option "file".
type tarball struct{}

func (tarball) Name() string { return "vendor.example/tarball" }

func (t tarball) Supports(v *v1.Volume) bool {
	return v.FlexVolume != nil && v.FlexVolume.Driver == t.Name()
}

// SetUp unpacks into a directory beside, and renames that at the end: what is there is
// complete.
func (tarball) SetUp(_ context.Context, req volume.SetUpRequest) (runtime.Volume, error) {
	ready := runtime.Volume{HostPath: req.Dir, ReadOnly: true}
	if _, err := os.Stat(req.Dir); !errors.Is(err, fs.ErrNotExist) {
		return ready, err
	}
	part := filepath.Join(req.StateDir, "unpacked")
	if err := errors.Join(os.RemoveAll(part), os.Mkdir(part, 0o755)); err != nil {
		return ready, err
	}
	if err := unpack(req.Volume.FlexVolume.Options["file"], part); err != nil {
		return ready, err
	}
	return ready, os.Rename(part, req.Dir)
}

// TearDown has nothing to do: the volume manager removes both directories.
func (tarball) TearDown(context.Context, volume.TearDownRequest) error { return nil }

// unpack unpacks the regular files of a tar file. No name leads out of dir.
func unpack(name, dir string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			err = unpackFile(root, h, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func unpackFile(root *os.Root, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
		return err
	}
	out, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Close())
}
