package checkpoint

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The content of records, with a valid header.
func FuzzContent(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"default","uid":"u"},"spec":{"containers":[{"name":"c","image":"i"}]}}`))
	f.Add([]byte(`{"secret":{"metadata":{"name":"s","namespace":"default"},"data":{"a":"Yg=="}}}`))
	f.Add([]byte(`{"configMap":{"metadata":{"name":"s","namespace":"default"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := New(t.TempDir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		packed := func(name string) []byte {
			record, err := pack(name, data, nil)
			if err != nil {
				t.Fatal(err)
			}
			return record
		}
		var pod v1.Pod
		if json.Unmarshal(data, &pod) == nil {
			name := fileOfPod(pod.UID).name
			if got, err := s.podOf(name, packed(name)); err == nil && (got.UID != pod.UID || !runtime.IsFileName(got.UID)) {
				t.Errorf("pod %q in the record of %q", got.UID, pod.UID)
			}
		}
		var r objectRecord
		if json.Unmarshal(data, &r) == nil && r.object() != nil {
			name := fileOf(objects.RefOf(r.object())).name
			_ = s.loadObject(name, packed(name))
		}
	})
}
