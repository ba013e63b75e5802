package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// EditPod changes a pod in the database, behind the API server: nothing validates the change.
func (p *ControlPlane) EditPod(t testing.TB, namespace, name string, edit func(*v1.Pod)) {
	t.Helper()
	key := "/registry/pods/" + namespace + "/" + name
	found := p.etcdCall(t, "range", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(key))})
	if len(found.KVs) != 1 {
		t.Fatalf("etcd has %d values for %s", len(found.KVs), key)
	}
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var pod v1.Pod
	if _, _, err := codec.Decode(found.KVs[0].Value, nil, &pod); err != nil {
		t.Fatal(err)
	}
	edit(&pod)
	pod.APIVersion, pod.Kind = "v1", "Pod"
	var data bytes.Buffer
	if err := codec.Encode(&pod, &data); err != nil {
		t.Fatal(err)
	}
	p.etcdCall(t, "put", map[string]string{
		"key": base64.StdEncoding.EncodeToString([]byte(key)), "value": base64.StdEncoding.EncodeToString(data.Bytes()),
	})
}

type etcdAnswer struct {
	KVs []struct{ Value []byte }
}

// etcdCall calls etcd by its gateway for JSON.
func (p *ControlPlane) etcdCall(t testing.TB, call string, args map[string]string) (answer etcdAnswer) {
	t.Helper()
	body, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := timeoutContext()
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: p.net.DialContext, DisableKeepAlives: true}}
	if err := post(ctx, client, "http://"+etcdAddr+"/v3/kv/"+call, body, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func post(ctx context.Context, client *http.Client, url string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, data)
	}
	return json.Unmarshal(data, answer)
}
