package cgroup_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // the library keeps its connection to systemd
		goleak.IgnoreAnyFunction("github.com/godbus/dbus/v5.(*Conn).inWorker"),
		goleak.IgnoreAnyFunction("github.com/godbus/dbus/v5.newConn.func1"),
		goleak.IgnoreAnyFunction("github.com/coreos/go-systemd/v22/dbus.(*Conn).dispatch.func1"))
}

// makePod makes a pod of the class.
func makePod(uid types.UID, class v1.PodQOSClass) *v1.Pod {
	c := v1.Container{Name: "c", Image: "i"}
	some := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	switch class {
	case v1.PodQOSGuaranteed:
		c.Resources = v1.ResourceRequirements{Limits: some, Requests: some}
	case v1.PodQOSBurstable:
		c.Resources = v1.ResourceRequirements{Requests: some}
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: "web"},
		Spec: v1.PodSpec{Containers: []v1.Container{c}}}
}

// The names that a kubelet 1.37 gives (pkg/kubelet/cm). A line with a source is an example
// that stands there; the others follow from GetPodContainerName, ToCgroupfs and ToSystemd.
func TestParent(t *testing.T) {
	const uid = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340"
	const static = "8d2b5a1e9c0f4e7b6a3d2c1b0a9f8e7d" // kubelet: the hash of a manifest
	for _, tc := range []struct {
		root   string
		driver cgroup.Driver
		class  v1.PodQOSClass
		uid    types.UID
		want   string
	}{
		// pkg/kubelet/stats/cri_stats_provider_test.go, the cases of a cgroup path
		{"", cgroup.Cgroupfs, v1.PodQOSBurstable, uid, "/kubepods/burstable/pod2fc932ce-fdcc-454b-97bd-aadfdeb4c340"},
		{"", cgroup.Systemd, v1.PodQOSBurstable, uid, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice"},
		// pkg/kubelet/cm/cgroup_manager_linux.go, the comment of ToSystemd
		{"/", cgroup.Systemd, v1.PodQOSBurstable, "1234-abcd-5678-efgh", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd_5678_efgh.slice"},

		{"/", cgroup.Cgroupfs, v1.PodQOSGuaranteed, uid, "/kubepods/pod" + uid},
		{"/", cgroup.Cgroupfs, v1.PodQOSBestEffort, uid, "/kubepods/besteffort/pod" + uid},
		{"/", cgroup.Systemd, v1.PodQOSGuaranteed, uid, "/kubepods.slice/kubepods-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice"},
		{"/", cgroup.Systemd, v1.PodQOSBestEffort, static, "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + static + ".slice"},
		{"/", "", v1.PodQOSGuaranteed, static, "/kubepods/pod" + static},

		{"/kubelet", cgroup.Cgroupfs, v1.PodQOSBestEffort, "u", "/kubelet/kubepods/besteffort/podu"}, // kind
		{"/kubelet", cgroup.Systemd, v1.PodQOSBestEffort, "u", "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podu.slice"},
		{"a-b/c/", cgroup.Cgroupfs, v1.PodQOSGuaranteed, "u", "/a-b/c/kubepods/podu"},
		{"a-b/c/", cgroup.Systemd, v1.PodQOSGuaranteed, "u", "/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-podu.slice"},
	} {
		pods, err := cgroup.New(cgroup.Options{Root: tc.root, Driver: func() string { return string(tc.driver) }})
		require.NoError(t, err)
		assert.Equal(t, tc.want, pods.Parent(makePod(tc.uid, tc.class)))

		pods, err = cgroup.New(cgroup.Options{Root: tc.root, DefaultDriver: tc.driver})
		require.NoError(t, err)
		assert.Equal(t, tc.want, pods.Parent(makePod(tc.uid, tc.class)), "the driver of the configuration")
	}
}

// The runtime knows best. Its driver may become known later.
func TestUsable(t *testing.T) {
	pods, err := cgroup.New(cgroup.Options{MountPoint: t.TempDir()})
	require.NoError(t, err)
	require.Error(t, pods.Usable(), "no cgroups are mounted there")
	pods, err = cgroup.New(cgroup.Options{})
	require.NoError(t, err)
	if os.Geteuid() != 0 {
		require.Error(t, pods.Usable())
	}
}

func TestTheDriverOfTheRuntime(t *testing.T) {
	driver := ""
	pods, err := cgroup.New(cgroup.Options{Driver: func() string { return driver }, DefaultDriver: cgroup.Cgroupfs})
	require.NoError(t, err)
	pod := makePod("u", v1.PodQOSGuaranteed)
	assert.Equal(t, "/kubepods/podu", pods.Parent(pod))
	driver = "systemd"
	assert.Equal(t, "/kubepods.slice/kubepods-podu.slice", pods.Parent(pod))
}

// A runc with the driver systemd takes the last element as the slice of a scope, as containerd
// and CRI-O hand it over. systemd requires of a slice that its name, up to each "-", is the name
// of the slice above it, without empty parts (systemd.slice(5); ExpandSlice in
// github.com/opencontainers/cgroups/systemd).
func TestSlicesAreThoseOfSystemd(t *testing.T) {
	for _, root := range []string{"/", "/kubelet", "/a-b/c", "/-a"} {
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			for _, uid := range []types.UID{"u", "a-b", "-a--b-", "2fc932ce-fdcc-454b-97bd-aadfdeb4c340"} {
				pods, err := cgroup.New(cgroup.Options{Root: root, DefaultDriver: cgroup.Systemd})
				require.NoError(t, err)
				parent := pods.Parent(makePod(uid, class))
				units := strings.Split(strings.TrimPrefix(parent, "/"), "/")
				last, ok := strings.CutSuffix(units[len(units)-1], ".slice")
				require.True(t, ok, parent)
				expanded, prefix := "", ""
				for part := range strings.SplitSeq(last, "-") {
					require.NotEmpty(t, part, parent)
					expanded += "/" + prefix + part + ".slice"
					prefix += part + "-"
				}
				assert.Equal(t, expanded, parent)
			}
		}
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	for _, opts := range []cgroup.Options{
		{Root: "/a//b"}, {Root: "/a/../b"}, {Root: "."}, {Root: "//"}, {Root: "/kubelet.slice"}, {Root: "/a:b"}, {DefaultDriver: "cgroupv2"},
	} {
		_, err := cgroup.New(opts)
		assert.ErrorContains(t, err, "cgroup", "%+v", opts)
	}
}
