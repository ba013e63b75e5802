package threads_test

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/node/threads"
)

func Example() {
	reserve, err := threads.New(threads.Options{Threads: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	made := reserve.Fill() // early in main; then agent.Add("limit of threads", reserve.Run)
	fmt.Println(made <= 8)
	// Output: true
}
