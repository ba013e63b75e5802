package oom

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func TestPlace(t *testing.T) {
	const uid = "8d0e1dfc-0000-4000-8000-000000000001"
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8d0e1dfc_0000_4000_8000_000000000001.slice"
	for cgroup, want := range map[string][2]string{
		cgroup:                               {uid, id1},
		podCgroup:                            {uid, ""},
		cgroup + "/made/by/the/container":    {uid, id1},
		cgroup + "/kubepods/podother/" + id2: {uid, id1},
		"/kubepods/pod" + uid + "/" + id1:    {uid, id1},
		"/root/podfoo/kubepods/poda/" + id1:  {"a", id1},
		slice:                                {uid, ""},
		slice + "/cri-containerd-" + id1 + ".scope":                         {uid, id1},
		slice + "/crio-" + id1 + ".scope/container":                         {uid, id1},
		"/kubepods.slice/kubepods-pod" + uid + ".slice/x-" + id1 + ".scope": {uid, id1},
		"/my.slice/my-pods.slice/my-pods-kubepods.slice/my-pods-kubepods-besteffort.slice/my-pods-kubepods-besteffort-poda_b.slice/" + id1: {"a-b", id1},
		"/docker/" + id2 + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-poda.slice/cri-containerd-" + id1 +
			".scope": {"a", id1},
		"/k8s.io/" + id1:                   {"", id1},
		"/system.slice/containerd.service": {"", ""},
		"/user.slice/pod" + uid + "/x":     {"", ""},
		"/kubepods/pod/x":                  {"", ""},
		"/kubepods":                        {"", ""},
		"/":                                {"", ""},
		"":                                 {"", ""},
	} {
		uid, id := Place(cgroup)
		assert.Equal(t, want, [2]string{string(uid), id}, cgroup)
	}
	uid2, _ := Place("/kubepods/pod" + uid)
	assert.Equal(t, types.UID(uid), uid2)
}
