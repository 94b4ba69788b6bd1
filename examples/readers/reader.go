// Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader [DIRECTORY OF THE VOLUME]
package main

import (
	"fmt"
	"os"
)

func token(volume string) string {
	// The kubelet replaces ..data as a whole: both files of one version belong together.
	version, _ := os.Readlink(volume + "/..data")
	role, noRole := os.ReadFile(volume + "/" + version + "/role")
	value, noToken := os.ReadFile(volume + "/" + version + "/token")
	if now, _ := os.Readlink(volume + "/..data"); now != version {
		return token(volume)
	}
	if noRole != nil || noToken != nil || string(role) != "active" {
		return ""
	}
	return string(value)
}

func main() {
	volume := "/lease"
	if len(os.Args) > 1 {
		volume = os.Args[1]
	}
	found := token(volume)
	if found == "" {
		os.Exit(1)
	}
	fmt.Println(found)
}
