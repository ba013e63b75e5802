package records_test

import (
	"fmt"
	"os"

	"github.com/kubeletkit/kubeletkit/node/images/records"
)

func Example() {
	dir, err := os.MkdirTemp("", "root")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := records.New(dir, records.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	const image, id = "registry.example/app:1", "sha256:4f53"
	ours := records.Credential{Secret: &records.Secret{UID: "1", Namespace: "a", Name: "pull", Hash: "e3b0"}}
	mayUse := func(c ...records.Credential) bool {
		decision, err := r.Decide(image, id, func() ([]records.Credential, error) { return c, nil })
		if err != nil {
			fmt.Println(err)
		}
		return decision.MayUse()
	}

	fmt.Println("preloaded:", mayUse())
	if err := r.Intend(image); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("while it is pulled:", mayUse(ours))
	if err := r.Pulled(image, id, ours); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("with the secret:", mayUse(ours))
	fmt.Println("without:", mayUse())
	// Output:
	// preloaded: true
	// while it is pulled: false
	// with the secret: true
	// without: false
}
