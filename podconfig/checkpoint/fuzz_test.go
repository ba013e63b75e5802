package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The content of records, with a valid header.
func FuzzContent(f *testing.F) {
	f.Add(
		[]byte(
			`{"metadata":{"name":"p","namespace":"default","uid":"u"},"spec":{"containers":[{"name":"c","image":"i"}]}}`))
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
			if got, err := s.podOf(name, packed(name)); err == nil &&
				(got.UID != pod.UID || !podspec.IsFileName(got.UID)) {
				t.Errorf("pod %q in the record of %q", got.UID, pod.UID)
			}
		}
		var r objectRecord
		if json.Unmarshal(data, &r) == nil && r.object() != nil {
			name := fileOf(objects.RefOf(r.object())).name
			_ = s.loadObject(name, packed(name))
		}
		var ref runtime.PodRef
		if json.Unmarshal(data, &ref) == nil {
			name := fileOfEnd(ref.UID).name
			if err := s.loadEnd(name, packed(name)); err == nil && !podspec.IsFileName(ref.UID) {
				t.Errorf("the end of pod %q", ref.UID)
			}
		}
		if err := s.states.make(); err != nil {
			t.Fatal(err)
		}
		if err := s.states.write("s", packed("s")); err != nil {
			t.Fatal(err)
		}
		var state map[string]string
		s.LoadState("s", &state)
	})
}

// A record that was not written with the key is not used, whatever it has.
func FuzzForgedRecord(f *testing.F) {
	key, err := newKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		f.Fatal(err)
	}
	content := []byte(`{"secret":{"metadata":{"name":"s","namespace":"default"}}}`)
	name := fileOf(objects.Ref{Kind: objects.SecretKind, Namespace: "default", Name: "s"}).name
	sealed, err := pack(name, content, key)
	if err != nil {
		f.Fatal(err)
	}
	open, err := pack(name, content, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, record := range [][]byte{sealed, open, open[1:], open[:len(open)-1],
		bytes.Replace(open, []byte("plain"), []byte("aes-gcm"), 1)} {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		got, err := unpack(name, record, key)
		if err == nil && !bytes.Equal(got, content) {
			t.Fatalf("%q was not written with the key", got)
		}
		s, err := New(t.TempDir(), Options{Key: bytes.Repeat([]byte{7}, 32)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.objects.make(); err != nil {
			t.Fatal(err)
		}
		if err := s.objects.write(name, record); err != nil {
			t.Fatal(err)
		}
		s.Load(t.Context())
		aside, err := os.ReadDir(s.objects.aside)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if len(aside) > 0 && mayBeReadable(record[:min(len(record), maxHeader)]) {
			t.Errorf("a record that may be readable is kept: %q", record)
		}
	})
}
