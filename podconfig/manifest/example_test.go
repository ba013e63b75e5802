package manifest_test

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// A manifest with an error, and the corrected manifest.
func ExampleLoad() {
	opts := manifest.Options{NodeName: "edge-7", Origin: "/etc/manifests/web.yaml"}
	for _, image := range []string{"image: ' nginx'", "image: nginx"} {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, " + image + "}]}\n"
		pods, err := manifest.Load([]byte(text), opts)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(pods[0].Name, pods[0].Spec.RestartPolicy, pods[0].Spec.Containers[0].ImagePullPolicy)
	}
	// Output:
	// pod default/web-edge-7 is invalid: spec.containers[0].image: Invalid value: " nginx": must not have leading or trailing whitespace
	// web-edge-7 Always Always
}
