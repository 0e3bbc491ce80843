"""What lies below torch: loops in C, built on first use and never needed, and pages of memory."""
