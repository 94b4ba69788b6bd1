// Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader [DIRECTORY OF THE VOLUME]
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	// The kubelet replaces ..data as a whole: both files of one version belong together.
	version, missing := filepath.EvalSymlinks(append(os.Args, "/lease")[1] + "/..data")
	role, _ := os.ReadFile(version + "/role")
	token, _ := os.ReadFile(version + "/token")
	if missing != nil || string(role) != "active" || len(token) == 0 {
		os.Exit(1)
	}
	fmt.Println(string(token))
}
