package integration

func beAgent() int { return 0 }
