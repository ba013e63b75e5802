package credentials_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/node/images/credentials"
)

// A pull secret comes before the credentials of the node.
func Example() {
	dir, err := os.MkdirTemp("", "credentials")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	node := filepath.Join(dir, "config.json")
	_ = os.WriteFile(node, []byte(`{"auths":{"*.example.com":{"username":"node","password":"a"}}}`), 0o600)
	secret := v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team", UID: "1"},
		Type:       v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{
			v1.DockerConfigJsonKey: []byte(
				`{"auths":{"registry.example.com/team":{"username":"team","password":"b"}}}`)},
	}

	source := credentials.Join(credentials.Secrets{}, credentials.NodeConfig(node))
	for _, image := range []string{"registry.example.com/team/app", "registry.example.com/tools",
		"docker.io/library/busybox"} {
		list, err := source.Credentials(context.Background(),
			credentials.Request{Image: image, Secrets: []v1.Secret{secret}})
		fmt.Println(image, list, err)
	}
	// Output:
	// registry.example.com/team/app ["team" of secret default/team "node" of the node] <nil>
	// registry.example.com/tools ["node" of the node] <nil>
	// docker.io/library/busybox [] <nil>
}
