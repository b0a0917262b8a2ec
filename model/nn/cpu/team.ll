; What the threads of the worker team run; team.py describes it, and sets the instruction with which a processor pauses.

declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.hint(i32)

define internal i1 @claimable(i64 %counter) {
  %next = and i64 %counter, 1048575
  %shifted = lshr i64 %counter, 20
  %total = and i64 %shifted, 1048575
  %open = icmp ult i64 %next, %total
  ret i1 %open
}

define internal void @drain(ptr %state) {
entry:
  %done = getelementptr i8, ptr %state, i64 64
  %segments.at = getelementptr i8, ptr %state, i64 128
  %call.at = getelementptr i8, ptr %state, i64 136
  br label %look
look:
  %seen = load atomic i64, ptr %state acquire, align 8
  %open = call i1 @claimable(i64 %seen)
  br i1 %open, label %claim, label %end
claim:
  %counter = atomicrmw add ptr %state, i64 1 acq_rel
  %mine = call i1 @claimable(i64 %counter)
  br i1 %mine, label %work, label %end
work:
  %chunk = and i64 %counter, 1048575
  %segments = load ptr, ptr %segments.at
  %call = load ptr, ptr %call.at
  br label %find
find:
  %segment = phi ptr [%segments, %work], [%following, %further]
  %following = getelementptr i8, ptr %segment, i64 64
  %next.first.at = getelementptr i8, ptr %following, i64 56
  %next.first = load i64, ptr %next.first.at
  %beyond = icmp uge i64 %chunk, %next.first
  br i1 %beyond, label %further, label %found
further:
  br label %find
found:
  %kernel = load ptr, ptr %segment
  %groups.at = getelementptr i8, ptr %segment, i64 40
  %groups = load i64, ptr %groups.at
  %each.at = getelementptr i8, ptr %segment, i64 48
  %each = load i64, ptr %each.at
  %first.at = getelementptr i8, ptr %segment, i64 56
  %first = load i64, ptr %first.at
  %number = sub i64 %chunk, %first
  %begin = mul i64 %number, %each
  %full = add i64 %begin, %each
  %over = icmp ugt i64 %full, %groups
  %until = select i1 %over, i64 %groups, i64 %full
  call void %kernel(ptr %segment, ptr %call, i64 %begin, i64 %until)
  %before = atomicrmw add ptr %done, i64 1 acq_rel
  br label %look
end:
  ret void
}

define void @run(ptr %state, ptr %segments, ptr %call, i64 %chunks) {
entry:
  %done = getelementptr i8, ptr %state, i64 64
  %segments.at = getelementptr i8, ptr %state, i64 128
  %call.at = getelementptr i8, ptr %state, i64 136
  %parked.at = getelementptr i8, ptr %state, i64 192
  %limit.at = getelementptr i8, ptr %state, i64 264
  %limit = load i64, ptr %limit.at
  store ptr %segments, ptr %segments.at
  store ptr %call, ptr %call.at
  store atomic i64 0, ptr %done seq_cst, align 8
  %old = load atomic i64, ptr %state seq_cst, align 8
  %job = lshr i64 %old, 40
  %job.next = add i64 %job, 1
  %high = shl i64 %job.next, 40
  %middle = shl i64 %chunks, 20
  %counter = or i64 %high, %middle
  store atomic i64 %counter, ptr %state seq_cst, align 8
  %parked = load atomic i64, ptr %parked.at seq_cst, align 8
  %asleep = icmp ne i64 %parked, 0
  br i1 %asleep, label %wake, label %share
wake:
  %mutex = getelementptr i8, ptr %state, i64 320
  %condition = getelementptr i8, ptr %state, i64 448
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %share
share:
  call void @drain(ptr %state)
  br label %wait
wait:
  %spins = phi i64 [0, %share], [%spins.next, %again]
  %ready = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %ready, %chunks
  br i1 %all, label %end, label %pause
pause:
  %spins.next = add i64 %spins, 1
  %long = icmp ugt i64 %spins, %limit
  br i1 %long, label %yield, label %short
yield:
  %y = call i32 @sched_yield()
  br label %again
short:
  PAUSE
  br label %again
again:
  br label %wait
end:
  ret void
}

define void @run_all(ptr %state, ptr %jobs, i64 %count) {
entry:
  br label %again
again:
  %n = phi i64 [0, %entry], [%n.next, %next]
  %at = mul i64 %n, 24
  %job = getelementptr i8, ptr %jobs, i64 %at
  %segments = load ptr, ptr %job
  %call.at = getelementptr i8, ptr %job, i64 8
  %call = load ptr, ptr %call.at
  %chunks.at = getelementptr i8, ptr %job, i64 16
  %chunks = load i64, ptr %chunks.at
  %single = icmp eq i64 %chunks, 1
  br i1 %single, label %alone, label %together
alone:
  %kernel = load ptr, ptr %segments
  %groups.at = getelementptr i8, ptr %segments, i64 40
  %groups = load i64, ptr %groups.at
  call void %kernel(ptr %segments, ptr %call, i64 0, i64 %groups)
  br label %next
together:
  call void @run(ptr %state, ptr %segments, ptr %call, i64 %chunks)
  br label %next
next:
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %again, label %end
end:
  ret void
}

define void @work(ptr %state) {
entry:
  %parked.at = getelementptr i8, ptr %state, i64 192
  %stop.at = getelementptr i8, ptr %state, i64 256
  %limit.at = getelementptr i8, ptr %state, i64 264
  %limit = load i64, ptr %limit.at
  %mutex = getelementptr i8, ptr %state, i64 320
  %condition = getelementptr i8, ptr %state, i64 448
  br label %look
look:
  %spins = phi i64 [0, %entry], [0, %busy], [%spins.next, %spin], [0, %awake]
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %end, label %see
see:
  %counter = load atomic i64, ptr %state acquire, align 8
  %open = call i1 @claimable(i64 %counter)
  br i1 %open, label %busy, label %idle
busy:
  call void @drain(ptr %state)
  br label %look
idle:
  %spins.next = add i64 %spins, 1
  %long = icmp ugt i64 %spins, %limit
  br i1 %long, label %park, label %spin
spin:
  PAUSE
  br label %look
park:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %p = atomicrmw add ptr %parked.at, i64 1 seq_cst
  br label %check
check:
  %counter.again = load atomic i64, ptr %state seq_cst, align 8
  %open.again = call i1 @claimable(i64 %counter.again)
  %stop.again = load atomic i64, ptr %stop.at seq_cst, align 8
  %stopped.again = icmp ne i64 %stop.again, 0
  %leave = or i1 %open.again, %stopped.again
  br i1 %leave, label %awake, label %sleep
sleep:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  %m = atomicrmw sub ptr %parked.at, i64 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %look
end:
  ret void
}

define void @spin(ptr %state, i64 %count) {
entry:
  br label %again
again:
  %n = phi i64 [0, %entry], [%n.next, %again]
  %counter = load atomic i64, ptr %state acquire, align 8
  PAUSE
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %again, label %end
end:
  ret void
}

define void @stop(ptr %state) {
  %stop.at = getelementptr i8, ptr %state, i64 256
  %mutex = getelementptr i8, ptr %state, i64 320
  %condition = getelementptr i8, ptr %state, i64 448
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %stop.at seq_cst, align 8
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}
